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
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from ds4chat.protocol.types import Channel, Span
from ds4chat.tui.palette import ColourMode, Palette
from ds4chat.tui.widgets.transcript_pace import MAX_QUEUED_WRITES, Pace, queued_writes
from ds4chat.tui.widgets.transcript_painter import Painter
from ds4chat.tui.widgets.transcript_rows import (
    Column,
    Row,
    Tone,
    between_rules,
    plain_block,
)
from ds4chat.tui.widgets.transcript_search import Hit
from ds4chat.tui.widgets.transcript_selection import selected_source
from ds4chat.tui.widgets.transcript_styles import COMPONENTS, CSS, StyleBook
from ds4chat.tui.widgets.transcript_tools import TranscriptTools
from ds4chat.tui.widgets.transcript_turns import ChannelView

MAX_LIVE_RESIZE = 2000  # lines; a longer transcript is wrapped when the resizing pauses
RESIZE_PAUSE_S = 0.15
USER_LABEL = "you"
REPLY_LABEL = "ds4"

_NOTICE_TONES = {"warning": Tone.WARNING, "error": Tone.ERROR}


class Transcript(TranscriptTools):
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
        super().__init__(Column(), clock, id, classes)
        self._views: dict[tuple[int, Channel], ChannelView] = {}
        self._turns: dict[int, list[ChannelView]] = {}
        self._users: dict[int, str] = {}
        self._user_rows: dict[int, Row] = {}
        self._hits: list[Hit] = []
        self._hit = 0
        self._marked: int | None = None
        self._styles = StyleBook(self._component_style)
        self._painter = Painter(self._column, self._styles)
        self._dirty: dict[int, ChannelView] = {}
        self._timer: Timer | None = None
        self._resize_timer: Timer | None = None
        self._pace = Pace(clock)

    # What the application says

    def add_user(self, text: str, turn_id: int) -> None:
        """Show what the person sent, as typed."""
        shown = text.replace("\r\n", "\n").replace("\r", "\n")
        self._users[turn_id] = shown
        self._user_rows[turn_id] = self._add_row(shown, Tone.USER, label=USER_LABEL)
        self.follow()

    def add_notice(self, text: str, level: str) -> None:
        """Show a remark of the program; `level` is "info", "warning" or "error"."""
        self._add_row(text, _NOTICE_TONES.get(level, Tone.INFO))

    def begin_reply(self, turn_id: int) -> None:
        """Expect the tokens of a reply."""
        self._turns.setdefault(turn_id, [])

    def append(
        self, turn_id: int, channel: Channel, spans: Sequence[Span], at_s: float = 0.0
    ) -> None:
        """Take tokens of a reply. Cheap: they are shown by the next flush."""
        view = self._view(turn_id, channel)
        view.append(spans, at_s)
        self._dirty[id(view)] = view
        self._schedule()

    def finish_reply(self, turn_id: int, receipt: str) -> None:
        """Settle a reply and show its receipt (empty: none)."""
        self.flush()
        self._end(self._turns.get(turn_id, []))
        if receipt:
            self._add_row(receipt, Tone.RECEIPT, fit=between_rules)

    def remove_from(self, turn_id: int) -> None:
        """Remove a turn and all that follows it."""
        row = self._user_rows.get(turn_id)
        if row is None:
            return
        self.flush()
        self._drop_selection()
        gone = self.turn_ids[self.turn_ids.index(turn_id) :]
        for owner in gone:
            del self._user_rows[owner], self._users[owner]
            self._turns.pop(owner, None)
        for key in [key for key in self._views if key[0] in gone]:
            del self._views[key]
        if self._marked in gone:
            self._marked = None
        if self._ghosts is not None and self._ghosts[0] in gone:
            self._ghosts = None
        self._changed(self._column.drop_from(row))
        self.follow()

    def clear(self) -> None:
        """Empty the transcript."""
        self._column.clear()
        self._views.clear()
        self._turns.clear()
        self._users.clear()
        self._user_rows.clear()
        self._dirty.clear()
        self._marked = self._ghosts = self._opened = None
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

    # Content

    def _view(self, turn_id: int, channel: Channel) -> ChannelView:
        view = self._views.get((turn_id, channel))
        if view is None:
            views = self._turns.setdefault(turn_id, [])
            self.flush()
            self._end(views)
            label = "" if views else REPLY_LABEL
            view = ChannelView(channel, self._column.add_section(), label, self._clock())
            if self._ghosts is not None and self._ghosts[0] == turn_id:
                view.haunt(self._ghosts[1])
            views.append(view)
            self._views[turn_id, channel] = view
        return view

    def _end(self, views: Sequence[ChannelView]) -> None:
        """Complete channels; reasoning that may be in the middle of being read stays open."""
        anchor = self._anchor()
        top = self._column.height
        for view in views:
            if view.channel is Channel.THINKING and not view.is_ended:
                self._drop_selection()
            changed = view.end(self._column, self._clock(), fold=self.is_following)
            top = top if changed is None else min(top, changed)
        self._changed(top)
        self._restore(anchor)

    def _add_row(
        self,
        text: str,
        tone: Tone,
        label: str = "",
        fit: Callable[[str, int], str] | None = None,
    ) -> Row:
        self.flush()
        section = self._column.add_section()
        row = Row(
            block=plain_block(text),
            fit=fit and (lambda room: plain_block(fit(text, room))),
            tone=tone,
            label=label,
            gap=bool(self._column.rows) and tone is not Tone.RECEIPT,
        )
        self._changed(self._column.replace(section, 0, [row]))
        return row

    def _fold(self, views: Sequence[ChannelView], *, is_folded: bool) -> None:
        self.flush()
        changed = [view for view in views if view.is_folded != is_folded]
        for view in changed:
            view.is_folded = is_folded
        self._reshow(changed)

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
        anchor = self._anchor()
        self._column.resize(max(1, self.scrollable_content_region.width))
        self._changed(0)
        self._restore(anchor)

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
        """Draw rows for the screen.

        Textual's own way copies every strip in every frame. Here a line that stays the same
        stays the same object, so that its filtered and encoded forms, which Textual keeps with
        the strip, are found again when the view scrolls.
        """
        width, top = self.region.width, self.scroll_offset.y
        background = self.background_colors[1]
        blank = Strip.blank(width, self.rich_style)
        strips = []
        for y in range(crop.y + top, crop.bottom + top):
            strip = self._painter.strip(y, blank)
            for line_filter in self.get_line_filters():
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip)
        if crop.column_span != (0, width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """Say what is on a row of the view: the screen asks so, to find the pointer."""
        strip = self._painter.located(y + self.scroll_offset.y)
        width = self.size.width
        if strip is None:
            return Strip.blank(width, self.rich_style)
        return strip.adjust_cell_length(width, self.rich_style)
