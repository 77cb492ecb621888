"""The race: two lanes of one engine, each on its own clock, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Static

from ds4chat.errors import Ds4Error
from ds4chat.protocol.events import TokensCommitted
from ds4chat.tui.palette import ColourMode, Palette
from ds4chat.tui.problems import sentence
from ds4chat.tui.race import files, lines
from ds4chat.tui.race.ask import Side
from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.race.lane import Lane
from ds4chat.tui.race.lines import Shown
from ds4chat.tui.race.race import Phase, Race, Recorded
from ds4chat.tui.race.replay import Replay
from ds4chat.tui.race.verdict import Outcome
from ds4chat.tui.widgets.hint_line import HintLine
from ds4chat.tui.widgets.lane import LaneView

FRAME_S = 1 / 30
WIDE_COLUMNS = 100
SHORT_ROWS = 16  # below, the text comes before bars and details
MIN_SIZE = (30, 7)  # columns, rows
KEYS = (
    ("Space", "pause"), ("R", "again"), ("P", "replay"), ("F4", "colours"), ("S", "card"),
    ("W", "report"), ("Esc", "back"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLook:
    """How a race looks and where its files go."""

    model: str
    palette: Palette
    colour_mode: ColourMode
    folder: Callable[[], Path] = files.races_dir
    clock: Callable[[], float] = time.monotonic


class RaceScreen(Screen[None]):
    """Shows a race. It reads the race's record and steers it; the engine is behind the race.

    Args:
        race: a race that was started.
        make_card: writes down the race as it stands.
        look: colours and names.
    """

    CSS_PATH = "race.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause or go on", show=False, priority=True),
        Binding("r,R", "again", "race again", show=False),
        Binding("p,P", "replay", "replay at true speed", show=False),
        Binding("f4,alt+4", "cycle_colours", "what the colours mean", show=False),
        Binding("s,S", "save_card", "save the speed card", show=False),
        Binding("w,W", "save_report", "save a report", show=False),
        Binding("escape,q,Q,f5,alt+5,ctrl+c", "leave", "back", show=False, priority=True),
        Binding("ctrl+q", "app.quit", "quit", show=False, priority=True),
    ]

    def __init__(self, race: Race, make_card: Callable[[], SpeedCard], look: RaceLook) -> None:
        super().__init__()
        self.race = race
        self._make_card = make_card
        self._look = look
        self._mode = look.colour_mode
        self._views = {
            side: LaneView(id=f"race-lane-{side.name.lower()}")
            for side in (Side.PLAIN, Side.SPEC)
        }
        self._standing = Static("", id="race-standing", markup=False)
        self._keys = Static("", id="race-keys", markup=False)
        self._too_small = Static("", id="race-too-small", markup=False)
        self._hints = HintLine()
        self._n_shown = 0
        self._start_shown = 0
        self._drawn: tuple[object, ...] | None = None
        self._settled: set[Side] = set()
        self.replay: Replay | None = None
        self._replayed: dict[Side, Lane] = {}

    def compose(self) -> ComposeResult:
        """Heading, lanes, standing, keys."""
        yield Static(
            lines.heading(self.race.ask, self._look.model), id="race-heading", markup=False
        )
        with Container(id="race-lanes"):
            yield from self._views.values()
        yield self._standing
        yield self._too_small
        yield self._keys
        yield self._hints

    def on_mount(self) -> None:
        """Take the look, and draw a few dozen times a second."""
        for view in self._views.values():
            view.set_look(self._look.palette, self._mode)
        self.set_interval(FRAME_S, self._frame)
        self._frame()

    def on_resize(self) -> None:
        """Side by side where there is room; where there is little, say so or show the text."""
        columns, rows = self.size
        self.set_class(columns >= WIDE_COLUMNS, "-wide")
        self.set_class(rows < SHORT_ROWS, "-short")
        self.set_class(columns < MIN_SIZE[0] or rows < MIN_SIZE[1], "-too-small")
        self._too_small.update(lines.too_small(MIN_SIZE, (columns, rows)))
        self._keys.update(lines.keys(KEYS, columns))

    # Drawing

    def _frame(self) -> None:
        still = self._still()
        if still is not None and still == self._drawn:
            return
        self._drawn = still
        if self._start_shown != self.race.n_starts:
            self._begin()
        if self.replay is not None:
            self._draw_replay(self.replay)
        else:
            self._draw_live()
        self._draw_standing()

    def _still(self) -> tuple[object, ...] | None:
        """What the picture of a race that has ended depends on; None while anything moves."""
        race = self.race
        if not race.is_over or self.replay is not None:
            return None
        sizes = tuple(view.size for view in self._views.values())
        return race.n_starts, len(race.recorded), race.phase, sizes

    def _begin(self) -> None:
        self._start_shown = self.race.n_starts
        self._n_shown = 0
        self.replay = None
        self._clear()

    def _clear(self) -> None:
        self._settled.clear()
        for side, view in self._views.items():
            view.begin(self.race.lanes[side].turn_id)

    def _draw_live(self) -> None:
        news = self.race.recorded[self._n_shown :]
        self._n_shown += len(news)
        self._append(news)
        for side, lane in self.race.lanes.items():
            self._views[side].show(lane, lines.now(lane), lines.goal(self.race))
            if lane.end is not None:
                self._settle(side)

    def _draw_replay(self, replay: Replay) -> None:
        now_s = self._look.clock()
        due = replay.due(now_s)
        self._append(due)
        for item in due:
            self._replayed[item.side].take(item.event)
        for side, lane in self.race.lanes.items():
            so_far = self._replayed[side]
            is_whole = len(so_far.tokens) >= len(lane.tokens)
            clock_s = min(replay.clock_s(now_s), lane.clock_s)
            shown = Shown(n_tokens=len(so_far.tokens), clock_s=clock_s)
            view = self._views[side]
            view.show(lane if is_whole else so_far, shown, lines.goal(self.race))
            if is_whole:
                self._settle(side)
        if replay.is_over:
            self.replay = None

    def _append(self, news: Sequence[Recorded]) -> None:
        for item in news:
            if isinstance(item.event, TokensCommitted):
                self._views[item.side].append(item.event)

    def _settle(self, side: Side) -> None:
        if side not in self._settled:
            self._settled.add(side)
            self._views[side].finish(self.race.lanes[side])

    def _draw_standing(self) -> None:
        race = self.race
        words = lines.standing(race)
        if self.replay is not None:
            state = "paused" if self.replay.is_paused else "at true speed"
            words = f"replay {state} · {self.replay.clock_s(self._look.clock()):.2f} s"
        self._standing.update(words)
        outcome = race.verdict.outcome if race.phase is Phase.FINISHED else None
        self._standing.set_class(outcome is Outcome.IDENTICAL, "-identical")
        bad = outcome is Outcome.DIFFERENT or race.phase is Phase.FAILED
        self._standing.set_class(bad, "-different")

    # Keys

    def action_pause(self) -> None:
        """Let the race or its replay wait, or go on."""
        if self.replay is not None:
            self.replay.toggle_pause(self._look.clock())
        else:
            self.race.toggle_pause()

    def action_again(self) -> None:
        """Race again from the start."""
        self.replay = None
        self.race.restart()

    def action_replay(self) -> None:
        """Show the race once more, both lanes at once, at the speed of their clocks."""
        if not self.race.is_over or not self.race.recorded:
            self._hint("The replay comes when the race is over.")
            return
        self._clear()
        self._replayed = {
            side: Lane(side=side, turn_id=lane.turn_id)
            for side, lane in self.race.lanes.items()
        }
        self.replay = Replay(self.race.recorded, self._look.clock())

    def action_cycle_colours(self) -> None:
        """The next meaning of the colours, in both lanes."""
        self._mode = self._mode.following()
        for view in self._views.values():
            view.transcript.set_colour_mode(self._mode)
        self._hint(f"Colours: {self._mode}")

    def action_save_card(self) -> None:
        """Save the speed card as a picture and as text."""

        def write(stem: Path, card: SpeedCard) -> list[Path]:
            names = [str(stem.with_suffix(ending)) for ending in (".svg", ".txt")]
            return [files.save_card(card, name) for name in names]

        self._save(write)

    def action_save_report(self) -> None:
        """Save every token of both lanes with its logit, for whoever looks into it."""

        def write(stem: Path, card: SpeedCard) -> list[Path]:
            path = stem.with_suffix(".report.json")
            files.write(path, files.report(self.race, card))
            return [path]

        self._save(write)

    def action_leave(self) -> None:
        """Back to where it was opened; what still runs is ended."""
        self.race.close()
        self.dismiss()

    def _save(self, write: Callable[[Path, SpeedCard], list[Path]]) -> None:
        if not self.race.is_over:
            self._hint("There is nothing to save before the race is over.")
            return
        card = self._make_card()
        stamp = "".join(c for c in card.measured_at[:19] if c.isdigit())
        try:
            written = write(self._look.folder() / f"race-{stamp}", card)
        except Ds4Error as error:
            self._hints.say(sentence(error.message, error.hint), 8)
            return
        self._hint("Saved " + " and ".join(str(path) for path in written))

    def _hint(self, text: str) -> None:
        self._hints.say(text, 4)
