"""The transcript as one column of rows, before any style: which block stands on which line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from rich.cells import cell_len

from ds4chat.tui.markdown.block import Block, BlockKind, Canvas
from ds4chat.tui.markdown.clean import clean
from ds4chat.tui.markdown.layout import MIN_WIDTH, Line, lay_out
from ds4chat.tui.markdown.reply import Reply, TokenLog

GUTTER = 5  # cells left of every block, for the speaker's name


class Tone(StrEnum):
    """Who speaks; decides the base style of a row. Values name the CSS component class."""

    USER = "user"
    ANSWER = "answer"
    THINKING = "thinking"
    SUMMARY = "summary"
    RECEIPT = "receipt"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """A block in the column.

    Attributes:
        block: What is drawn.
        tone: Its base style.
        label: Drawn in the gutter of its first line.
        reply: Where its text and tokens come from; None for what the program or person says.
        gap: Whether an empty line stands above, besides the block's own gap.
        log: Provenance of what the program says, where `reply` is None.
        fit: Makes the block for so many cells, for what is not only wrapped.
    """

    block: Block
    tone: Tone
    label: str = ""
    reply: Reply | None = None
    log: TokenLog | None = None
    gap: bool = False
    fit: Callable[[int], Block] | None = None
    lines: list[Line] = field(default_factory=list)
    width: int = 0

    def lay_out(self, width: int) -> int:
        """Bring `lines` to a width (cells, gutter included); return their number."""
        if self.width != width:
            self.width = width
            head: list[Line] = [()] if self.gap else []
            room = max(MIN_WIDTH, width - GUTTER)
            if self.fit is not None:
                self.block = self.fit(room)
            self.lines = head + lay_out(self.block, room)
        return len(self.lines)

    @property
    def label_line(self) -> int:
        """The index of the line that bears the label."""
        return self.gap + self.block.gap

    def offset_of(self, line: int) -> int:
        """The display offset at which a line starts."""
        for item in self.lines[line]:
            if not isinstance(item, str):
                return item[0]
        return 0

    def line_of(self, offset: int) -> int:
        """The line that shows a display offset."""
        for index in range(len(self.lines) - 1, -1, -1):
            slices = [item for item in self.lines[index] if not isinstance(item, str)]
            if slices and slices[0][0] <= offset:
                return index
        return 0


@dataclass(slots=True, eq=False)
class Section:
    """Neighbouring rows that change together."""

    rows: list[Row] = field(default_factory=list)
    start: int = 0


class Place(NamedTuple):
    """A line: its row, the row's index in the column, and the index in the row's lines."""

    row: Row
    row_idx: int
    line: int


class Column:
    """All rows with the line each begins on. Width in cells, heights in lines."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.tops: list[int] = []
        self.height = 0
        self.width = 0
        self._sections: list[Section] = []

    def add_section(self) -> Section:
        """A new empty section at the end."""
        section = Section(start=len(self.rows))
        self._sections.append(section)
        return section

    def clear(self) -> None:
        """Drop everything."""
        self.rows, self.tops, self.height = [], [], 0
        self._sections.clear()

    def replace(self, section: Section, first: int, rows: Sequence[Row]) -> int:
        """Exchange the rows of a section from its row `first` on.

        Returns:
            The first line that may have changed.
        """
        start = section.start + first
        stop = section.start + len(section.rows)
        section.rows[first:] = rows
        self.rows[start:stop] = rows
        shift = len(rows) - (stop - start)
        if shift:
            for later in self._sections[self._sections.index(section) + 1 :]:
                later.start += shift
        self._place(start)
        return self.tops[start] if start < len(self.tops) else self.height

    def drop_from(self, row: Row) -> int:
        """Remove the section of a row and all that follows; return the first line gone."""
        index = next(i for i, s in enumerate(self._sections) if row in s.rows)
        start = self._sections[index].start
        del self._sections[index:], self.rows[start:]
        self._place(start)
        return self.height

    def resize(self, width: int) -> None:
        """Lay everything out anew."""
        self.width = width
        self._place(0)

    def _place(self, start: int) -> None:
        """Compute the lines and tops of the rows from `start` on."""
        del self.tops[start:]
        top = self.tops[-1] + len(self.rows[start - 1].lines) if start else 0
        for row in self.rows[start:]:
            self.tops.append(top)
            top += row.lay_out(self.width)
        self.height = top

    def place(self, y: int) -> Place | None:
        """What stands on line `y`."""
        if not 0 <= y < self.height:
            return None
        idx = bisect_right(self.tops, y) - 1
        return Place(self.rows[idx], idx, y - self.tops[idx])

    def row_at(self, old: Row, source: int) -> Row:
        """The row that shows a source offset of the same channel; `old` if there is none."""
        rows = [row for row in self.rows if row.reply is old.reply and row.tone is old.tone]
        shown = [row for row in rows if row.block.runs and row.block.source_at(0) <= source]
        return shown[-1] if shown and old.reply is not None else old

    def top_of(self, row: Row) -> int | None:
        """The first line of a row, None if it is not shown."""
        try:
            return self.tops[self.rows.index(row)]
        except ValueError:
            return None


def plain_block(text: str) -> Block:
    """A block that shows text as it is written; line feeds stay, tabs are widened."""
    source = clean(text)
    canvas = Canvas(source)
    at = 0
    for line in source.split("\n"):
        if at:
            canvas.add("\n", at - 1, 1)
        canvas.add_tabbed(line, at)
        at += len(line) + 1
    block = Block(kind=BlockKind.TEXT, text=canvas.text, runs=canvas.runs)
    block.assign(())
    return block


def between_rules(text: str, room: int) -> str:
    """A receipt as it is drawn in `room` cells; without the last rule where that does not fit.

    A longer one is broken between its parts.
    """
    line = f"── {text} ──"
    if cell_len(line) <= room:
        return line
    rows = ["──"]
    for place, part in enumerate(text.split(" · ")):
        joined = f"{rows[-1]}{' · ' if place else ' '}{part}"
        if place and cell_len(joined) > room:
            rows.append(f"   {part}")
        else:
            rows[-1] = joined
    return "\n".join(rows)
