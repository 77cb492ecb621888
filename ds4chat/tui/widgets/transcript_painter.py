"""Paints lines of the transcript: text and styles of one line at a time, the last ones kept."""

from __future__ import annotations

from collections import OrderedDict

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ds4chat.tui.markdown.block import NO_TOKEN
from ds4chat.tui.widgets.transcript_rows import GUTTER, Column, Place
from ds4chat.tui.widgets.transcript_styles import StyleBook

MAX_STRIPS = 2000  # a strip owns about 1.4 kB of caches


class Painter:
    """Strips of a column, by line."""

    def __init__(self, column: Column, styles: StyleBook) -> None:
        self._column = column
        self._styles = styles
        self._strips: OrderedDict[int, Strip] = OrderedDict()

    def forget(self, top: int) -> None:
        """Drop the strips of the lines from `top` on."""
        if top <= 0:
            self._strips.clear()
        for y in [y for y in self._strips if y >= top]:
            del self._strips[y]

    def strip(self, y: int) -> Strip | None:
        """The strip of a line, not padded; None beyond the end."""
        strip = self._strips.get(y)
        if strip is not None:
            self._strips.move_to_end(y)
            return strip
        place = self._column.place(y)
        if place is None:
            return None
        strip = self._strips[y] = _strip(self._parts(place))
        if len(self._strips) > MAX_STRIPS:
            self._strips.popitem(last=False)
        return strip

    def plain(self, y: int) -> str:
        """The text of a line without styles and trailing spaces; empty beyond the end."""
        place = self._column.place(y)
        return "".join(line_texts(place)).rstrip() if place else ""

    def _parts(self, place: Place) -> list[tuple[str, Style]]:
        """The texts of a line with their styles, gutter first."""
        row, index = place
        drawn = self._styles.drawn(row.tone)
        gutter = _gutter(place)
        parts = [(gutter, self._styles.label() if gutter.strip() else drawn)]
        for item in row.lines[index]:
            if isinstance(item, str):
                parts.append((item, drawn))
                continue
            for piece in row.block.pieces(*item):
                log = row.log if piece.token != NO_TOKEN else None
                style = self._styles.of(row.tone, piece.look, log, piece.token)
                parts.append((row.block.text[piece.start : piece.end], style))
        return parts


def line_texts(place: Place) -> list[str]:
    """The texts of a line, gutter first."""
    row, index = place
    text = row.block.text
    items = row.lines[index]
    parts = [item if isinstance(item, str) else text[item[0] : item[1]] for item in items]
    return [_gutter(place), *parts]


def _gutter(place: Place) -> str:
    is_labelled = place.line == place.row.label_line
    return (place.row.label if is_labelled else "").ljust(GUTTER)


def _strip(parts: list[tuple[str, Style]]) -> Strip:
    """Segments of the parts, neighbours of one style joined: fewer bytes for the terminal."""
    segments: list[Segment] = []
    for text, style in parts:
        if segments and segments[-1].style is style:
            segments[-1] = Segment(segments[-1].text + text, style)
        elif text:
            segments.append(Segment(text, style))
    return Strip(segments, sum(cell_len(segment.text) for segment in segments))
