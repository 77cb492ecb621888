"""Table rows with columns: markdown-it keeps no positions inside a row."""

from __future__ import annotations

from typing import NamedTuple


class RawCell(NamedTuple):
    """Trimmed content of a cell and the source offset of each of its characters."""

    content: str
    sources: list[int]


def split_row(line: str, at: int) -> list[RawCell]:
    r"""Split a row at its unescaped pipes; `\|` becomes a pipe of its own.

    Args:
        line: The row without container prefixes.
        at: The source offset of its first character.
    """
    cells: list[list[tuple[str, int]]] = [[]]
    is_escaped = False
    for index, char in enumerate(line):
        if char == "|" and not is_escaped:
            cells.append([])
        else:
            if char == "|":
                cells[-1].pop()
            cells[-1].append((char, at + index))
        is_escaped = char == "\\"
    trimmed = [_trim(cell) for cell in cells]
    if len(trimmed) > 1 and not trimmed[0].content:
        trimmed.pop(0)
    if len(trimmed) > 1 and not trimmed[-1].content:
        trimmed.pop()
    return trimmed


def _trim(cell: list[tuple[str, int]]) -> RawCell:
    start, end = 0, len(cell)
    while start < end and cell[start][0].isspace():
        start += 1
    while end > start and cell[end - 1][0].isspace():
        end -= 1
    return RawCell("".join(c for c, _ in cell[start:end]), [at for _, at in cell[start:end]])


def alignments(line: str) -> tuple[str, ...]:
    """The alignment of each column, from the delimiter row."""
    found = []
    for part in line.strip().strip("|").split("|"):
        mark = part.strip()
        right, left = mark.endswith(":"), mark.startswith(":")
        found.append("center" if right and left else "right" if right else "left")
    return tuple(found)
