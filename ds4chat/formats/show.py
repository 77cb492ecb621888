"""File text made fit for a message: never a control character, never longer than asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def printable(text: str, limit: int = 80) -> str:
    """Escape what a terminal might obey or hide, and cut to `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else _escape(c) for c in cut)


def shown_path(path: str | Path) -> str:
    """A path for a message."""
    return printable(str(path), 400)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def problem_text(path: str | Path, problems: Sequence[str]) -> str:
    """One message for all `problems` of a file: one line for one, else a list."""
    head = f"{shown_path(path)}: "
    if len(problems) == 1:
        return head + problems[0]
    return head + f"{len(problems)} problems" + "".join(f"\n  - {line}" for line in problems)


def problems_of(path: str | Path, message: str) -> list[str]:
    """The problems of a message that `problem_text` made, or any other about that file."""
    head, *rest = message.removeprefix(f"{shown_path(path)}: ").split("\n  - ")
    return rest or [head]
