"""Cut blocks into lines of a given width. Pure geometry: no styles, no colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from rich.cells import cell_len

from ds4chat.store.graphemes import graphemes
from ds4chat.tui.markdown.block import Block, BlockKind, Cell, Table

# A line is drawn from left to right: text of the program, or a slice (start, end) of the
# block's display text.
Line: TypeAlias = tuple[str | tuple[int, int], ...]

MIN_WIDTH = 8
_COLUMN = " │ "


def lay_out(block: Block, width: int) -> list[Line]:
    """The lines of a block, its gap included.

    Args:
        block: What to draw.
        width: Cells in a line; less than `MIN_WIDTH` counts as that.
    """
    # Deep nesting must not push the text off the screen. Everything drawn is one cell wide.
    limit = max(0, width - max(MIN_WIDTH, width // 3))
    prefix, cont = block.prefix[:limit], block.cont[:limit]
    room = max(MIN_WIDTH, width - len(cont))
    lines: list[Line] = [(block.gap_prefix[:limit],)] if block.gap else []
    if block.kind is BlockKind.TABLE and block.table is not None:
        rows = _TableLayout(block.text, block.table, room).lines()
        lines += [(cont, *row) for row in rows]
        return lines
    if block.kind is BlockKind.RULE:
        lines.append((prefix, (0, min(len(block.text), room))))
        return lines
    # The first line begins with the markers in `text`; they are as wide as what `cont` adds.
    first_room = max(MIN_WIDTH, width - len(prefix))
    for start, end in _hard_lines(block.text):
        if block.kind is BlockKind.CODE:
            cuts = chop(block.text, start, end, room)
        else:
            cuts = wrap(block.text, start, end, room, first_room)
        first_room = room
        for cut in cuts:
            lines.append((prefix, cut))
            prefix = cont
    return lines


def _hard_lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield start, end
        start = end + 1
    yield start, len(text)


def wrap(
    text: str, start: int, end: int, width: int, first_width: int | None = None
) -> list[tuple[int, int]]:
    """Wrap a slice without line feeds at words; a word wider than a line is cut.

    Spaces at a break are not drawn. Breaks are also allowed beside characters two cells wide.
    """
    first = width if first_width is None else first_width
    if text[start:end].isascii():
        return _wrap_ascii(text, start, end, width, first)
    return _wrap_graphemes(text[start:end], start, width, first)


def _wrap_ascii(
    text: str, start: int, end: int, width: int, room: int
) -> list[tuple[int, int]]:
    lines = []
    while end - start > room:
        space = text.rfind(" ", start, start + room + 1)
        if space <= start or not text[start:space].strip(" "):
            stop = following = start + room
        else:
            stop = len(text[:space].rstrip(" ")) if text[space - 1] == " " else space
            following = space + 1
            while following < end and text[following] == " ":
                following += 1
        lines.append((start, stop))
        start, room = following, width
    if start < end or not lines:
        lines.append((start, end))
    return lines


def _wrap_graphemes(text: str, shift: int, width: int, room: int) -> list[tuple[int, int]]:
    lines: list[tuple[int, int]] = []
    start = used = 0  # of the line
    stop = following = -1  # the last place to break: end of this line, start of the next
    used_at_break = 0
    was_wide = False
    for begin, end, cells in graphemes(text):
        is_space = text[begin:end] == " "
        if begin > start and not is_space:
            after_space = text[begin - 1] == " "
            if after_space or cells == 2 or was_wide:
                following, used_at_break = begin, used
                stop = start + len(text[start:begin].rstrip(" "))
        while used + cells > room and not is_space and begin > start:
            if following <= start or stop <= start:
                stop = following = begin
                used_at_break = used
            lines.append((start + shift, stop + shift))
            start, used, room = following, used - used_at_break, width
        used += cells
        was_wide = cells == 2
    rest = start + len(text[start:].rstrip(" ")) if used > room else len(text)
    if start < len(text) or not lines:
        lines.append((start + shift, max(start, rest) + shift))
    return lines


def chop(text: str, start: int, end: int, width: int) -> list[tuple[int, int]]:
    """Cut a slice every `width` cells, never inside a grapheme."""
    if text[start:end].isascii():
        cuts = [(at, min(end, at + width)) for at in range(start, end, width)]
        return cuts or [(start, end)]
    cuts, begin, used = [], start, 0
    for first, _, cells in graphemes(text[start:end]):
        if used + cells > width and start + first > begin:
            cuts.append((begin, start + first))
            begin, used = start + first, 0
        used += cells
    return [*cuts, (begin, end)]


class _TableLayout:
    """Lines of one table: columns share the width, the widest gives way first."""

    def __init__(self, text: str, table: Table, room: int) -> None:
        self._text = text
        self._table = table
        self._room = room

    def lines(self) -> list[Line]:
        widths = self._widths()
        if not widths:
            return self._listed()
        lines: list[Line] = []
        for index, row in enumerate(self._table.rows):
            lines += self._row(row, widths)
            if index == 0:
                lines.append(("─┼─".join("─" * width for width in widths),))
        return lines

    def _widths(self) -> list[int]:
        """Cells per column; empty when there is no room for columns."""
        rows = self._table.rows
        n = len(rows[0])
        room = self._room - len(_COLUMN) * (n - 1)
        if room < 3 * n:
            return []
        widths = [max(1, *(self._cells(row[i]) for row in rows)) for i in range(n)]
        while (excess := sum(widths) - room) > 0:
            widest = max(widths)
            second = max((w for w in widths if w < widest), default=3)
            among = [i for i, w in enumerate(widths) if w == widest]
            step = max(1, min(widest - second, excess // len(among)))
            for i in among[: max(1, excess // step)]:
                widths[i] -= step
        return widths

    def _cells(self, cell: Cell) -> int:
        return cell_len(self._text[cell.start : cell.end])

    def _row(self, row: tuple[Cell, ...], widths: list[int]) -> Iterator[Line]:
        cells = [
            wrap(self._text, cell.start, cell.end, width)
            for cell, width in zip(row, widths, strict=True)
        ]
        aligns = (*self._table.aligns, *("left",) * len(widths))
        for level in range(max(len(cuts) for cuts in cells)):
            line: list[str | tuple[int, int]] = []
            for column, (cuts, width) in enumerate(zip(cells, widths, strict=True)):
                cut = cuts[level] if level < len(cuts) else (0, 0)
                pad = max(0, width - cell_len(self._text[cut[0] : cut[1]]))
                left = {"right": pad, "center": pad // 2}.get(aligns[column], 0)
                line += [_COLUMN[: 3 * (column > 0)] + " " * left, cut, " " * (pad - left)]
            yield tuple(line)

    def _listed(self) -> list[Line]:
        """One cell below the other, rows set apart by rules."""
        lines: list[Line] = []
        for index, row in enumerate(self._table.rows):
            if index:
                lines.append(("─" * min(self._room, 8),))
            for cell in row:
                lines += [(cut,) for cut in wrap(self._text, *cell, self._room)]
        return lines
