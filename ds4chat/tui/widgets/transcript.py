"""The transcript: one line-drawn widget for the whole conversation.

It takes values and draws them. Tokens are buffered and shown a few dozen times a second. A
flush touches only the block that grows, and a repaint styles only the lines on screen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from ds4chat.protocol.types import Channel, Span
from ds4chat.tui.palette import ColourMode, Palette
from ds4chat.tui.widgets.transcript_pace import MAX_QUEUED_WRITES, Pace, queued_writes
from ds4chat.tui.widgets.transcript_painter import Painter
from ds4chat.tui.widgets.transcript_rows import Column, Row, Tone, plain_block
from ds4chat.tui.widgets.transcript_selection import selected_source
from ds4chat.tui.widgets.transcript_styles import COMPONENTS, CSS, StyleBook
from ds4chat.tui.widgets.transcript_turns import ChannelView

SCROLLED_INTERVAL_S = 0.25  # how often the height grows while the view does not follow
MAX_LIVE_RESIZE = 2000  # lines; a longer transcript is wrapped when the resizing pauses
RESIZE_PAUSE_S = 0.15
USER_LABEL = "you"
REPLY_LABEL = "ds4"

_NOTICE_TONES = {"warning": Tone.WARNING, "error": Tone.ERROR}


class Transcript(ScrollView, can_focus=True):
    """Shows turns, replies with token provenance, receipts and notices."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(COMPONENTS)
    DEFAULT_CSS = CSS

    def __init__(
        self,
        *,
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """An empty transcript that follows its end.

        Args:
            id: The widget's id.
            classes: CSS classes.
            clock: Seconds, for the duration of reasoning and the pace of flushes.
        """
        super().__init__(id=id, classes=classes)
        self._clock = clock
        self._column = Column()
        self._views: dict[tuple[int, Channel], ChannelView] = {}
        self._turns: dict[int, list[ChannelView]] = {}
        self._users: dict[int, str] = {}
        self._styles = StyleBook(self._component_style)
        self._painter = Painter(self._column, self._styles)
        self._dirty: dict[int, ChannelView] = {}
        self._timer: Timer | None = None
        self._grow_timer: Timer | None = None
        self._resize_timer: Timer | None = None
        self._pace = Pace(clock)
        self._last_grown = float("-inf")
        self._is_painting = False
        self.is_following = True

    # What the application says

    def add_user(self, text: str, turn_id: int) -> None:
        """Show what the person sent, as typed."""
        shown = text.replace("\r\n", "\n").replace("\r", "\n")
        self._users[turn_id] = shown
        self._add_row(shown, Tone.USER, label=USER_LABEL)
        self.follow()

    def add_notice(self, text: str, level: str) -> None:
        """Show a remark of the program; `level` is "info", "warning" or "error"."""
        self._add_row(text, _NOTICE_TONES.get(level, Tone.INFO))

    def begin_reply(self, turn_id: int) -> None:
        """Expect the tokens of a reply."""
        self._turns.setdefault(turn_id, [])

    def append(self, turn_id: int, channel: Channel, spans: Sequence[Span]) -> None:
        """Take tokens of a reply. Cheap: they are shown by the next flush."""
        view = self._view(turn_id, channel)
        view.append(spans)
        self._dirty[id(view)] = view
        self._schedule()

    def finish_reply(self, turn_id: int, receipt: str) -> None:
        """Settle a reply and show its receipt (empty: none)."""
        self.flush()
        self._end(self._turns.get(turn_id, []))
        if receipt:
            self._add_row(f"── {receipt} ──", Tone.RECEIPT)

    def clear(self) -> None:
        """Empty the transcript."""
        self._column.clear()
        self._views.clear()
        self._turns.clear()
        self._users.clear()
        self._dirty.clear()
        self._changed(0)
        self.follow()

    def set_colour_mode(self, mode: ColourMode) -> None:
        """Choose what colours tell. Costs one repaint."""
        self._styles.mode = mode
        self._restyle()

    @property
    def colour_mode(self) -> ColourMode:
        """What colours tell."""
        return self._styles.mode

    def set_theme_colours(self, palette: Palette) -> None:
        """Choose the colours of provenance."""
        self._styles.palette = palette
        self._restyle()

    def set_folded(self, turn_id: int, is_folded: bool) -> None:
        """Fold or unfold the reasoning of one turn; the text in view stays where it is."""
        view = self._views.get((turn_id, Channel.THINKING))
        if view is not None:
            self._fold([view], is_folded=is_folded)

    def toggle_fold(self) -> None:
        """Unfold all reasoning, or fold it if any is unfolded."""
        views = [v for (_, channel), v in self._views.items() if channel is Channel.THINKING]
        self._fold(views, is_folded=any(not view.is_folded for view in views))

    def plain_text(self) -> str:
        """All lines as drawn, without styles."""
        self.flush()
        return "\n".join(self._painter.plain(y) for y in range(self._column.height))

    def turn_source(self, turn_id: int, channel: Channel) -> str:
        """The source text of a channel of a reply; empty if there is none."""
        view = self._views.get((turn_id, channel))
        return view.reply.text if view else ""

    def user_source(self, turn_id: int) -> str:
        """What the person sent in a turn; empty if nothing."""
        return self._users.get(turn_id, "")

    def follow(self) -> None:
        """Go to the end and stay there while text comes."""
        self.is_following = True
        self._grow()

    # Content

    def _view(self, turn_id: int, channel: Channel) -> ChannelView:
        view = self._views.get((turn_id, channel))
        if view is None:
            views = self._turns.setdefault(turn_id, [])
            self.flush()
            self._end(views)
            label = "" if views else REPLY_LABEL
            view = ChannelView(channel, self._column.add_section(), label, self._clock())
            views.append(view)
            self._views[turn_id, channel] = view
        return view

    def _end(self, views: Sequence[ChannelView]) -> None:
        """Complete channels; reasoning that may be in the middle of being read stays open."""
        anchor = self._anchor_line()
        top = self._column.height
        for view in views:
            if view.channel is Channel.THINKING and not view.is_ended:
                self._drop_selection()
            changed = view.end(self._column, self._clock(), fold=self.is_following)
            top = top if changed is None else min(top, changed)
        self._changed(top)
        self._restore(anchor)

    def _drop_selection(self) -> None:
        """Select nothing: rows are about to move."""
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def _add_row(self, text: str, tone: Tone, label: str = "") -> None:
        self.flush()
        section = self._column.add_section()
        row = Row(
            block=plain_block(text),
            tone=tone,
            label=label,
            gap=bool(self._column.rows) and tone is not Tone.RECEIPT,
        )
        self._changed(self._column.replace(section, 0, [row]))

    def _fold(self, views: Sequence[ChannelView], *, is_folded: bool) -> None:
        self.flush()
        self._drop_selection()
        anchor = self._anchor_line()
        top = self._column.height
        for view in views:
            if view.is_folded != is_folded:
                view.is_folded = is_folded
                top = min(top, view.show(self._column))
        self._changed(top)
        self._restore(anchor)

    # Flushing

    def _schedule(self) -> None:
        """Set the timer for the next flush, unless it is set."""
        if self._timer is not None or not self.is_attached:
            return
        self._timer = self.set_timer(self._pace.delay(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if queued_writes(self.app) > MAX_QUEUED_WRITES:
            # A slow terminal: more frames would only lengthen the wait for key echo.
            self._pace.skip()
            self._schedule()
            return
        self.flush()

    def flush(self) -> None:
        """Show all tokens that came."""
        if not self._dirty:
            return
        started = self._clock()
        views = list(self._dirty.values())
        self._dirty.clear()
        top = self._column.height
        for view in views:
            changed = view.flush(self._column)
            top = top if changed is None else min(top, changed)
        self._changed(top)
        self._pace.note(started)

    def _changed(self, top: int) -> None:
        """Lines from `top` on are not what they were."""
        self._painter.forget(top)
        if self.is_attached:
            self._grow()
            visible = max(top, self.scroll_offset.y)
            self.refresh_lines(
                visible, max(1, self.scroll_offset.y + self.size.height - visible)
            )

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
        if new_value > old_value and new_value >= self.max_scroll_y - 0.5:
            self.is_following = True
            if self.virtual_size.height != self._column.height:
                self.call_later(self._grow)

    # Geometry

    def on_mount(self) -> None:
        """Take over the application's settings."""
        self._styles.is_mono = self.app.no_color
        self._schedule()

    def on_resize(self, _: events.Resize) -> None:
        """Wrap everything to the new width; the top line stays."""
        width = max(1, self.scrollable_content_region.width)
        if width == self._column.width:
            self._grow()
            return
        if self._column.height > MAX_LIVE_RESIZE and self._column.width:
            # Wrapping this much at every step of a drag would block the keys.
            if self._resize_timer is not None:
                self._resize_timer.stop()
            self._resize_timer = self.set_timer(RESIZE_PAUSE_S, self._rewrap)
        else:
            self._rewrap()

    def _rewrap(self) -> None:
        self._resize_timer = None
        anchor = self._anchor_line()
        self._column.resize(max(1, self.scrollable_content_region.width))
        self._changed(0)
        self._restore(anchor)

    def _anchor_line(self) -> tuple[Row, int] | None:
        """The row and display offset at the top of the view; None when following."""
        place = self._column.place(self.scroll_offset.y)
        if self.is_following or place is None:
            return None
        return place.row, place.row.offset_of(place.line)

    def _restore(self, anchor: tuple[Row, int] | None) -> None:
        """Put the anchor back at the top of the view."""
        if anchor is None:
            return
        top = self._column.top_of(anchor[0])
        if top is not None:
            y = top + anchor[0].line_of(anchor[1])
            self.virtual_size = Size(self._column.width, self._column.height)
            self.scroll_to(y=y, animate=False, force=True)

    # Painting

    def notify_style_update(self) -> None:
        """Drop painted lines: the theme changed."""
        super().notify_style_update()
        self._restyle()

    def _restyle(self) -> None:
        self._styles.clear()
        self._painter.forget(0)
        if self.is_attached:
            self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The source of what is selected, and what separates it from more."""
        return selected_source(self._column, selection), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw another selection."""
        self._painter.selection = selection
        self._painter.selected = self.screen.get_component_rich_style("screen--selection")
        self._painter.forget(0)
        self.refresh()

    def _component_style(self, name: str) -> Style:
        return self.get_component_rich_style(f"transcript--{name}")

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw rows for the screen."""
        self._is_painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._is_painting = False

    def render_line(self, y: int) -> Strip:
        """Draw one row of the viewport, or say what is there when the screen asks directly."""
        line = y + self.scroll_offset.y
        painter = self._painter
        strip = painter.strip(line) if self._is_painting else painter.located(line)
        width = self.size.width
        if strip is None:
            return Strip.blank(width, self.rich_style)
        return strip.adjust_cell_length(width, self.rich_style)
