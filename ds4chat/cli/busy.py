"""Another process holds the model: say who, and wait for it, share the memory, or leave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ds4chat.engine import owner

LARGE_BYTES = 2 << 30
"""Smaller models are opened twice without a word."""

_ANSWERS = {"w": "w", "wait": "w", "g": "g", "go": "g", "go on": "g", "q": "q", "quit": "q"}

Ask = Callable[[str], str | None]


def may_open(model: Path, when_busy: str, ask: Ask | None) -> bool:
    """Whether to open `model` now; waits if that is wanted.

    Args:
        model: the main file.
        when_busy: `auto`, `wait` or `share`.
        ask: reads a line behind a question, None at the end of input; None: nobody is there
            to answer, `auto` then waits.
    """
    if when_busy == "share" or model.stat().st_size < LARGE_BYTES:
        return True
    while found := owner.holders(model):
        words = f"{model.name} is already open in {found[0]}; two copies may not fit in memory"
        answer = "w"
        if when_busy == "auto" and ask is not None:
            answer = _answer(ask, f"ds4chat: {words}.\n[w]ait for it, [g]o on, or [q]uit? ")
        if answer != "w":
            return answer == "g"
        _say(f"{words}. Waiting for it; --no-wait goes on instead.")
        owner.wait(found[0])
    return True


def _answer(ask: Ask, question: str) -> str:
    """`w`, `g` or `q`; the end of input quits."""
    while (line := ask(question)) is not None:
        answer = _ANSWERS.get(line.strip().lower())
        if answer is not None:
            return answer
    return "q"


def _say(text: str) -> None:
    sys.stderr.write(f"ds4chat: {text}\n")
    sys.stderr.flush()
