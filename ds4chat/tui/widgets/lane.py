"""One lane of a race: its clock and figures above its own transcript."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ds4chat.protocol.events import TokensCommitted
from ds4chat.tui.palette import ColourMode, Palette
from ds4chat.tui.race import lines
from ds4chat.tui.race.lane import Lane
from ds4chat.tui.race.lines import Shown
from ds4chat.tui.widgets.transcript import Transcript


class LaneView(Vertical):
    """Shows a lane as it is, or as far as a replay has come."""

    DEFAULT_CSS = """
    LaneView { border-top: solid $panel; }
    LaneView > .lane-title { height: 1; color: $primary; text-style: bold; }
    LaneView > .lane-track { height: 1; color: $accent; }
    LaneView > Static { text-wrap: nowrap; text-overflow: ellipsis; }
    LaneView > .lane-detail {
        height: auto; max-height: 3; text-wrap: wrap; color: $text-muted;
    }
    LaneView > Transcript { height: 1fr; }
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.transcript = Transcript(id=f"{id}-text")
        self._title = Static("", classes="lane-title", markup=False)
        self._track = Static("", classes="lane-track", markup=False)
        self._detail = Static("", classes="lane-detail", markup=False)

    def compose(self) -> ComposeResult:
        """Clock and counts, the bar, how it decodes, the text."""
        yield self._title
        yield self._track
        yield self._detail
        yield self.transcript

    def set_look(self, palette: Palette, mode: ColourMode) -> None:
        """Choose the colours of provenance and what they tell."""
        self.transcript.set_theme_colours(palette)
        self.transcript.set_colour_mode(mode)

    def begin(self, turn_id: int) -> None:
        """Empty the text: a new start, or a replay."""
        self.transcript.clear()
        self.transcript.begin_reply(turn_id)

    def append(self, event: TokensCommitted) -> None:
        """Add tokens."""
        self.transcript.append(event.turn_id, event.channel, event.spans)

    def finish(self, lane: Lane) -> None:
        """Settle the text."""
        self.transcript.finish_reply(lane.turn_id, lines.times(lane))

    def show(self, lane: Lane, shown: Shown, goal: int) -> None:
        """Draw clock, bar and figures."""
        width = max(1, self.size.width - 1)
        title = lines.title(lane, shown)
        self._title.update(title if len(title) <= width else " ".join(title.split()))
        self._track.update(lines.track(shown, goal, width))
        self._detail.update(lines.detail(lane))
