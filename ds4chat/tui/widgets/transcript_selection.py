"""Selected text of the transcript.

Offsets are (display offset in the block, index of the row): they survive streaming, another
width and another colour mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from textual.selection import Selection

from ds4chat.tui.widgets.transcript_rows import Column, Place, Row

NOTHING = (0, 0)


def selected_span(selection: Selection | None, place: Place) -> tuple[int, int]:
    """The selected display offsets of a row; `NOTHING` if there are none."""
    return _span(selection, place.row, place.row_idx)


def _span(selection: Selection | None, row: Row, index: int) -> tuple[int, int]:
    span = selection.get_span(index) if selection is not None else None
    if span is None:
        return NOTHING
    end = len(row.block.text)
    return max(0, span[0]), end if span[1] < 0 else min(span[1], end)


def selected_source(column: Column, selection: Selection) -> str:
    """What to copy: the source between the first and the last selected character.

    Text of replies keeps its Markdown; whole blocks keep their bullets and marks.
    """
    parts = []
    for _, rows in groupby(_selected(column, selection), key=lambda item: id(_owner(item[0]))):
        chosen = list(rows)
        first, (start, _) = chosen[0]
        last, (_, end) = chosen[-1]
        if first.reply is None:
            parts.append(first.block.text[start:end])
        else:
            parts.append(_slice(first.reply.text, first, start, last, end))
    return "\n\n".join(parts)


def _owner(row: Row) -> object:
    """What the text of a row belongs to: a channel of a reply, or the row alone."""
    return row.reply if row.reply is not None else row


def _selected(column: Column, selection: Selection) -> Iterator[tuple[Row, tuple[int, int]]]:
    first = selection.start.y if selection.start is not None else 0
    last = selection.end.y if selection.end is not None else len(column.rows) - 1
    for index in range(max(0, first), min(last + 1, len(column.rows))):
        row = column.rows[index]
        span = _span(selection, row, index)
        if span[0] < span[1]:
            yield row, span


def _slice(source: str, first: Row, start: int, last: Row, end: int) -> str:
    """The source from a display offset in one row to one in another."""
    begin = first.block.source_at(start)
    if start == 0:
        begin = source.rfind("\n", 0, begin) + 1
    stop = last.block.source_at(end - 1) + 1
    if end == len(last.block.text):
        feed = source.find("\n", stop)
        stop = len(source) if feed < 0 else feed
    return source[begin:stop]
