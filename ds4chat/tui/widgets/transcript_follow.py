"""A scrolling view that follows its end while text comes, until the person scrolls away."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.timer import Timer

from ds4chat.tui.widgets.transcript_rows import Column, Row

SCROLLED_INTERVAL_S = 0.25  # how often the height grows while the view does not follow


class Anchor(NamedTuple):
    """A row, a display offset in it, and the source offset shown there."""

    row: Row
    offset: int
    source: int


class FollowingView(ScrollView, can_focus=True):
    """Shows a column of rows; `is_following` while its end stays in view."""

    def __init__(
        self,
        column: Column,
        clock: Callable[[], float],
        id: str | None,  # noqa: A002 - Textual's own name
        classes: str | None,
    ) -> None:
        """Follow from the start.

        Args:
            column: The rows.
            clock: Seconds that never go back.
            id: The widget's id.
            classes: CSS classes.
        """
        super().__init__(id=id, classes=classes)
        self._column = column
        self._clock = clock
        self._grow_timer: Timer | None = None
        self._last_grown = float("-inf")
        self.is_following = True

    def follow(self) -> None:
        """Go to the end and stay there while text comes."""
        self.is_following = True
        self._grow()

    def show_line(self, y: int) -> None:
        """Bring a line of the column into the upper third of the view, and stay there."""
        self.is_following = False
        self.virtual_size = Size(self._column.width, self._column.height)
        top = max(0, min(y - self.size.height // 3, self.max_scroll_y))
        self.scroll_to(y=top, animate=False, force=True)

    def _grow(self) -> None:
        """Give the scroll bar the height, and keep to the end when following."""
        if not self.is_attached:
            return
        height = self._column.height
        if self.is_following:
            self.virtual_size = Size(self._column.width, height)
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)
            self.is_following = True  # scroll_to counts as a scroll of the person
            return
        wait = self._last_grown + SCROLLED_INTERVAL_S - self._clock()
        if wait <= 0 or height < self.virtual_size.height:
            self._last_grown = self._clock()
            self.virtual_size = Size(self._column.width, height)
        elif self._grow_timer is None:
            self._grow_timer = self.set_timer(wait, self._grow_later)

    def _grow_later(self) -> None:
        self._grow_timer = None
        self._grow()

    def release_anchor(self) -> None:
        """Stop following: Textual calls this for every scroll of the person."""
        super().release_anchor()
        self.is_following = False
        if self.is_attached:
            self.virtual_size = Size(self._column.width, self._column.height)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow again when the person has scrolled to the end."""
        super().watch_scroll_y(old_value, new_value)
        # Textual tells the bar only while it is shown; the first scroll comes before that.
        self.vertical_scrollbar.position = new_value
        if new_value > old_value and new_value >= self.max_scroll_y - 0.5:
            self.is_following = True
            if self.virtual_size.height != self._column.height:
                self.call_later(self._grow)

    def _anchor(self) -> Anchor | None:
        """What stands at the top of the view; None when following."""
        place = self._column.place(self.scroll_offset.y)
        if self.is_following or place is None:
            return None
        offset = place.row.offset_of(place.line)
        return Anchor(place.row, offset, place.row.block.source_at(offset))

    def _restore(self, anchor: Anchor | None) -> None:
        """Put the anchor back at the top of the view."""
        if anchor is None:
            return
        row, offset = anchor.row, anchor.offset
        top = self._column.top_of(row)
        if top is None:  # the block was built anew
            row = self._column.row_at(anchor.row, anchor.source)
            offset = row.block.display_of(anchor.source)
            top = self._column.top_of(row)
        if top is not None:
            self.virtual_size = Size(self._column.width, self._column.height)
            self.scroll_to(y=top + row.line_of(offset), animate=False, force=True)
