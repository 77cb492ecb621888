"""Paints lines of the transcript: text and styles of one line at a time, the last ones kept."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip

from ds4chat.tui.markdown.block import NO_TOKEN, Look
from ds4chat.tui.widgets.transcript_code import MAX_CHARACTERS, CodePieces
from ds4chat.tui.widgets.transcript_rows import GUTTER, Column, Place, Row, Tone
from ds4chat.tui.widgets.transcript_selection import selected_span
from ds4chat.tui.widgets.transcript_styles import StyleBook

MAX_STRIPS = 800  # with its filtered form a strip owns several kB of caches

MARK = "▌"  # beside the marked turn
_SEARCHED = (Tone.USER, Tone.ANSWER, Tone.THINKING)


class Overlay(NamedTuple):
    """A style laid over display text."""

    start: int
    end: int
    style: Style


class Painter:
    """Strips of a column, by line.

    Attributes:
        selection: What the person has selected: offsets (display offset, row index).
        selected: The style laid over selected text.
        pattern: What is searched for.
        hit: The row and start of the current hit.
        marked: Indexes of the rows beside which a bar stands.
    """

    def __init__(self, column: Column, styles: StyleBook) -> None:
        self._column = column
        self._styles = styles
        self._strips: OrderedDict[int, Strip] = OrderedDict()
        self.selection: Selection | None = None
        self.pattern: re.Pattern[str] | None = None
        self.hit: tuple[Row, int] | None = None
        self.marked = range(0)
        self._code = CodePieces()
        self.selected = Style(reverse=True)

    def forget(self, top: int) -> None:
        """Drop the strips of the lines from `top` on."""
        if top <= 0:
            self._strips.clear()
        for y in [y for y in self._strips if y >= top]:
            del self._strips[y]

    def strip(self, y: int, blank: Strip) -> Strip:
        """The strip of a line.

        Args:
            y: The line.
            blank: An empty line of the wanted width and background; drawn beyond the end.
        """
        strip = self._strips.get(y)
        if strip is not None and strip.cell_length == blank.cell_length:
            self._strips.move_to_end(y)
            return strip
        place = self._column.place(y)
        if place is None:
            return blank
        style = next(iter(blank)).style
        strip = self._paint(place).adjust_cell_length(blank.cell_length, style)
        self._strips[y] = strip
        if len(self._strips) > MAX_STRIPS:
            self._strips.popitem(last=False)
        return strip

    def located(self, y: int) -> Strip | None:
        """The strip of a line whose segments say where they are, for finding the pointer.

        Not for painting: styles with meta data are slow to make.
        """
        place = self._column.place(y)
        if place is None:
            return None
        start = place.row.offset_of(place.line)
        segments = [Segment("", _offset(start, place.row_idx)), Segment(_gutter(place))]
        for item in place.row.lines[place.line]:
            if isinstance(item, str):
                segments.append(Segment(item))
            else:
                text = place.row.block.text[item[0] : item[1]]
                segments.append(Segment(text, _offset(item[0], place.row_idx)))
        return Strip(segments)

    def plain(self, y: int) -> str:
        """The text of a line without styles and trailing spaces; empty beyond the end."""
        place = self._column.place(y)
        return "".join(line_texts(place)).rstrip() if place else ""

    def _paint(self, place: Place) -> Strip:
        """Draw a line: gutter first."""
        row = place.row
        drawn = self._styles.drawn(row.tone)
        gutter = _gutter(place)
        parts = [(gutter, self._styles.label() if gutter.strip() else drawn)]
        if place.row_idx in self.marked:
            parts = [(f"{gutter[:-2]}{MARK} ", self._styles.label())]
        overlays = self._overlays(place)
        for item in row.lines[place.line]:
            if isinstance(item, str):
                parts.append((item, drawn))
                continue
            parts += self._slice(row, item, overlays)
        return _strip(parts)

    def _overlays(self, place: Place) -> list[Overlay]:
        """What lies over the text of a row: hits of a search, then the selection."""
        found: list[Overlay] = []
        if self.pattern is not None:
            for start, end in find_hits(place.row, self.pattern):
                is_current = self.hit == (place.row, start)
                found.append(Overlay(start, end, self._styles.hit(is_current=is_current)))
        span = selected_span(self.selection, place)
        if span[0] < span[1]:
            found.append(Overlay(*span, self.selected))
        return found

    def _slice(
        self, row: Row, item: tuple[int, int], overlays: list[Overlay]
    ) -> Iterator[tuple[str, Style]]:
        """A slice of a row's text with its styles."""
        block, reply = row.block, row.reply
        if self._styles.has_syntax and block.language and reply is not None and _is_done(row):
            for start, end, kind in self._code.pieces(block, *item):
                style = self._styles.syntax(row.tone, kind)
                yield from _laid_over(block.text, start, end, style, overlays)
            return
        for piece in block.pieces(*item):
            known = reply.log if reply is not None else row.log
            log = known if piece.token != NO_TOKEN else None
            style = self._styles.of(row.tone, piece.look, log, piece.token)
            yield from _laid_over(block.text, piece.start, piece.end, style, overlays)


def _is_done(row: Row) -> bool:
    """Whether a row's code will not grow, is not too long to lex, and holds no ghosts."""
    block = row.block
    is_short = len(block.text) <= MAX_CHARACTERS
    has_ghosts = any(look & Look.GHOST for look in block.looks)
    return row.reply is not None and row.reply.is_settled and is_short and not has_ghosts


def _laid_over(
    text: str, first: int, last: int, style: Style, overlays: list[Overlay]
) -> Iterator[tuple[str, Style]]:
    """Text of one style, cut where overlays start and end."""
    over = [o for o in overlays if o.start < last and o.end > first]
    edges = {edge for o in over for edge in o[:2] if first < edge < last}
    for start, end in pairwise([first, *sorted(edges), last]):
        shown = style
        for overlay in over:
            if overlay.start <= start and end <= overlay.end:
                shown += overlay.style
        yield text[start:end], shown


def find_hits(row: Row, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """Display offsets of the places in a row that match; ghosts and remarks never do."""
    if row.tone not in _SEARCHED:
        return []
    block = row.block
    spans = (found.span() for found in pattern.finditer(block.text))
    return [
        span
        for span in spans
        if not any(piece.look & Look.GHOST for piece in block.pieces(*span))
    ]


def line_texts(place: Place) -> list[str]:
    """The texts of a line, gutter first."""
    text = place.row.block.text
    items = place.row.lines[place.line]
    parts = [item if isinstance(item, str) else text[item[0] : item[1]] for item in items]
    return [_gutter(place), *parts]


def _gutter(place: Place) -> str:
    is_labelled = place.line == place.row.label_line
    return (place.row.label if is_labelled else "").ljust(GUTTER)


def _offset(x: int, y: int) -> Style:
    return Style.from_meta({"offset": (x, y)})


def _strip(parts: list[tuple[str, Style]]) -> Strip:
    """Segments of the parts, neighbours of one style joined: fewer bytes for the terminal."""
    segments: list[Segment] = []
    for text, style in parts:
        if not text:
            continue
        if segments and segments[-1].style is style:
            segments[-1] = Segment(segments[-1].text + text, style)
        else:
            segments.append(Segment(text, style))
    return Strip(segments, sum(cell_len(segment.text) for segment in segments))
