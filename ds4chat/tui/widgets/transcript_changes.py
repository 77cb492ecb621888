"""A transcript whose rows change: what is drawn anew, and what stays where it is."""

from __future__ import annotations

from collections.abc import Sequence

from ds4chat.protocol.types import Channel
from ds4chat.tui.widgets.transcript_follow import FollowingView
from ds4chat.tui.widgets.transcript_painter import Painter
from ds4chat.tui.widgets.transcript_rows import Row
from ds4chat.tui.widgets.transcript_turns import ChannelView


class ChangingView(FollowingView):
    """The channels of the replies as rows."""

    _painter: Painter
    _views: dict[tuple[int, Channel], ChannelView]
    _user_rows: dict[int, Row]
    _marked: int | None

    @property
    def turn_ids(self) -> list[int]:
        """The turns in order."""
        return list(self._user_rows)

    def _place_mark(self) -> None:
        """Tell the painter which rows the marked turn has now."""
        if self._marked is None:
            self._painter.marked = range(0)
            return
        rows = self._column.rows
        ids = self.turn_ids
        following = ids[ids.index(self._marked) + 1 :]
        first = rows.index(self._user_rows[self._marked])
        stop = rows.index(self._user_rows[following[0]]) if following else len(rows)
        self._painter.marked = range(first, stop)

    def _reshow(self, views: Sequence[ChannelView]) -> None:
        """Build the rows of channels anew; the text in view stays where it is."""
        self._drop_selection()
        anchor = self._anchor()
        top = self._column.height
        for view in views:
            top = min(top, view.show(self._column))
        self._changed(top)
        self._restore(anchor)

    def _drop_selection(self) -> None:
        """Select nothing: rows are about to move."""
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def _changed(self, top: int) -> None:
        """Lines from `top` on are not what they were."""
        self._painter.forget(top)
        self._place_mark()
        if self.is_attached:
            self._grow()
            visible = max(top, self.scroll_offset.y)
            self.refresh_lines(
                visible, max(1, self.scroll_offset.y + self.size.height - visible)
            )
