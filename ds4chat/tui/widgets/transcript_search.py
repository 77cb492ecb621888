"""Finding text in the transcript, also in folded reasoning, which opens at the hit."""

from __future__ import annotations

import re
from typing import NamedTuple

from ds4chat.tui.widgets.transcript_changes import ChangingView
from ds4chat.tui.widgets.transcript_painter import find_hits
from ds4chat.tui.widgets.transcript_rows import Row
from ds4chat.tui.widgets.transcript_turns import ChannelView


class Found(NamedTuple):
    """What a search shows: hits, and the current one from 1 (0: none)."""

    n: int
    current: int


class Hit(NamedTuple):
    """A place that matches: its row and display offset; in folded text the summary's row."""

    row: Row
    start: int
    folded: ChannelView | None = None


class SearchTools(ChangingView):
    """The part of the transcript that searches."""

    _hits: list[Hit]
    _hit: int
    _opened: ChannelView | None = None  # unfolded for the current hit

    def search(self, query: str) -> Found:
        """Mark all places that show a text, in any case, and go to the first in view or below.

        An empty query ends the search; reasoning that was opened for a hit stays open then.
        """
        self._painter.pattern = re.compile(re.escape(query), re.IGNORECASE) if query else None
        if not query:
            self._opened = None
        self._hits = self._all_hits()
        top = self.scroll_offset.y
        lines = (self._line_of(hit) for hit in self._hits)
        self._hit = next((i for i, line in enumerate(lines) if line >= top), 0)
        return self._show_hit()

    def search_step(self, step: int) -> Found:
        """Go to the next (1) or the previous (-1) hit, round and round."""
        before = self._hits[self._hit] if self._hits else None
        self._hits = self._all_hits()
        if self._hits:
            at = self._hits.index(before) if before in self._hits else self._hit
            self._hit = (at + step) % len(self._hits)
        return self._show_hit()

    def _all_hits(self) -> list[Hit]:
        pattern = self._painter.pattern
        if pattern is None:
            return []
        folded = {
            view.section.rows[0]: view
            for view in self._views.values()
            if view.is_folded and view.section.rows
        }
        found: list[Hit] = []
        for row in self._column.rows:
            view = folded.get(row)
            if view is None:
                found += [Hit(row, start) for start, _ in find_hits(row, pattern)]
                continue
            for block in view.reply.blocks:
                found += [
                    Hit(row, match.start(), view) for match in pattern.finditer(block.text)
                ]
        return found

    def _line_of(self, hit: Hit) -> int:
        top = self._column.top_of(hit.row) or 0
        return top if hit.folded is not None else top + hit.row.line_of(hit.start)

    def _show_hit(self) -> Found:
        if self._hits:
            self._open_at(self._hits[self._hit])
        hit = self._hits[self._hit] if self._hits else None
        self._painter.hit = (hit.row, hit.start) if hit is not None else None
        if hit is not None:
            line = self._line_of(hit)
            if not 0 <= line - self.scroll_offset.y < self.size.height:
                self.show_line(line)
        self._painter.forget(0)
        self.refresh()
        return Found(len(self._hits), self._hit + 1 if hit else 0)

    def _open_at(self, hit: Hit) -> None:
        """Unfold the reasoning that holds a hit, and fold again what an earlier hit opened."""
        wanted, opened = hit.folded, self._opened
        if opened is not None and wanted is None and hit.row.reply is opened.reply:
            return
        changed = []
        if opened is not None and not opened.is_folded and opened in self._views.values():
            opened.is_folded = True
            changed.append(opened)
        if wanted is not None:
            wanted.is_folded = False
            changed.append(wanted)
        self._opened = wanted
        if changed:
            self._reshow(changed)
            self._hits = self._all_hits()  # as many, in the same order
