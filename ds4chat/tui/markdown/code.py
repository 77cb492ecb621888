"""Code: blocks of lines, and the end of a fence. Shared by the parser and a growing fence."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ds4chat.tui.markdown.block import Block, BlockKind, Canvas, Look

CODE_BAR = "│ "
CHUNK_LINES = 40  # long code is many blocks of this many lines


def code_block(
    source: str,
    base: int,
    lines: Iterable[tuple[str, int]],
    info: tuple[str, int] | None,
    language: str = "",
) -> Block:
    """A block of code lines, each with its offset in `source`, after an optional label."""
    canvas = Canvas(source, base)
    if info is not None:
        canvas.add(info[0], info[1], len(info[0]), Look.MARKER)
    for index, (line, at) in enumerate(lines):
        if index or info is not None:
            canvas.add("\n", at - 1, 1)
        canvas.add_tabbed(line, at)
    return Block(
        kind=BlockKind.CODE,
        text=canvas.text,
        runs=canvas.runs,
        prefix=CODE_BAR,
        cont=CODE_BAR,
        language=language,
        code_at=len(info[0]) + 1 if info is not None else 0,
    )


def language_of(info: tuple[str, int] | None) -> str:
    """The language that a fence's label names: its first word."""
    words = info[0].split() if info is not None else []
    return words[0].lower() if words else ""


def closing_fence(mark: str) -> re.Pattern[str]:
    """The pattern of a line that ends a top-level fence."""
    return re.compile(rf" {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*")
