"""A race as it runs: two turns in two lanes of one engine, kept abreast by the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ds4chat.protocol.commands import Cancel, CloseSession, Command, Pause, Resume
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Notice,
    PlainStep,
    PolicyChanged,
    PrefillProgress,
    Refused,
    RoundVerified,
    StatsSnapshot,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import FinishReason
from ds4chat.tui.problems import joined
from ds4chat.tui.race.ask import LANES, RaceAsk, Side
from ds4chat.tui.race.lane import Lane
from ds4chat.tui.race.verdict import Verdict, compare

_OF_A_TURN = (
    TurnStarted | PrefillProgress | TokensCommitted | RoundVerified | PlainStep | PolicyChanged
    | StatsSnapshot | Notice | TurnFinished
)  # fmt: skip
Told = TokensCommitted | RoundVerified | PlainStep | PolicyChanged
"""What a replay tells again."""
_BROKEN = (FinishReason.ERROR, FinishReason.NONFINITE)
_FIRST_TURN = 1_000_000_000
"""Turn ids of races begin here, out of the way of a chat's."""


class Phase(StrEnum):
    """Where a race stands."""

    READING = "reading the prompt"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Something a lane wrote or did, for the replay, at the lane's own engine second."""

    side: Side
    at_s: float
    event: Told


class Race:
    """Starts, steers and records one race after another over the same conversation.

    Args:
        send: takes commands for the engine.
        number: gives fresh request ids.
        ask: what is raced.
    """

    def __init__(
        self, send: Callable[[Command], None], number: Callable[[], int], ask: RaceAsk
    ) -> None:
        self.ask = ask
        self.phase = Phase.READING
        self.lanes: dict[Side, Lane] = {}
        self.recorded: list[Recorded] = []
        self._untimed: dict[Side, list[Told]] = {side: [] for side in Side}
        self.trouble = ""
        self.n_starts = 0
        self.ended_at = ""  # ISO 8601; whoever has a calendar writes it
        self._send = send
        self._number = number
        self._requests: dict[int, Side | None] = {}  # unanswered; the lane of a `Submit`
        self._sides: dict[int, Side] = {}  # by turn id
        self._open: set[int] = set()  # turns whose end has not come
        self._restarts = self._closes = False

    def start(self) -> None:
        """Ask in both lanes. The speculative one goes first only into the queue."""
        self.n_starts += 1
        self.phase, self.trouble, self.ended_at = Phase.READING, "", ""
        self.recorded = []
        self._untimed = {side: [] for side in Side}
        self._sides.clear()
        for side in (Side.SPEC, Side.PLAIN):
            request_id = self._ask_for(side)
            turn_id = _FIRST_TURN + request_id
            self.lanes[side] = Lane(side=side, turn_id=turn_id)
            self._sides[turn_id] = side
            self._open.add(turn_id)
            self._send(self.ask.submit(side, request_id=request_id, turn_id=turn_id))

    @property
    def plain(self) -> Lane:
        """The plain lane."""
        return self.lanes[Side.PLAIN]

    @property
    def spec(self) -> Lane:
        """The speculative lane."""
        return self.lanes[Side.SPEC]

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return not self._open

    @property
    def verdict(self) -> Verdict:
        """The comparison so far."""
        return compare(self.plain, self.spec)

    @property
    def ratio(self) -> float | None:
        """Speculative over plain tokens a second, each on its own clock; None until known."""
        plain, spec = self.plain.tps, self.spec.tps
        return spec / plain if plain and spec else None

    def toggle_pause(self) -> None:
        """Let both lanes wait, or go on."""
        if self.phase in (Phase.READING, Phase.RUNNING):
            self.phase = Phase.PAUSED
            self._steer(Pause)
        elif self.phase is Phase.PAUSED:
            self.phase = Phase.RUNNING
            self._steer(Resume)

    def stop(self) -> None:
        """End both lanes; what they wrote is kept."""
        self._steer(Cancel)

    def restart(self) -> None:
        """Race again from the start, as soon as what runs has ended."""
        if self.is_over:
            self.start()
        else:
            self._restarts = True
            self.stop()

    def close(self) -> None:
        """End both lanes and give their memory back."""
        self._restarts, self._closes = False, True
        self.stop()
        if self.is_over:
            self._free()

    def owns(self, event: Event) -> bool:
        """Whether an event belongs to this race."""
        match event:
            case Done() | Refused():
                return event.request_id in self._requests
            case EngineFailed():
                return False  # the chat's, and the race's: see `engine_died`
            case _:
                return isinstance(event, _OF_A_TURN) and (event.turn_id or 0) >= _FIRST_TURN

    def report(self, event: Event) -> None:
        """Take in an event that it owns."""
        if isinstance(event, Done | Refused):
            self._answered(event)
        elif isinstance(event, _OF_A_TURN) and event.turn_id is not None:
            if isinstance(event, TurnFinished):
                self._open.discard(event.turn_id)
            side = self._sides.get(event.turn_id)
            if side is not None:
                self._take(side, event)
            if isinstance(event, TurnFinished) and self.is_over:
                self._all_ended()

    def engine_died(self, message: str) -> None:
        """The engine is gone; nothing more will come."""
        self._open.clear()
        self._requests.clear()
        if not all(lane.is_complete for lane in self.lanes.values()):
            self.phase, self.trouble = Phase.FAILED, message

    def _take(self, side: Side, event: _OF_A_TURN) -> None:
        self.lanes[side].take(event)
        if isinstance(event, TokensCommitted):
            self._record(side, event.at_s)
            self.recorded.append(Recorded(side=side, at_s=event.at_s, event=event))
            if self.phase is Phase.READING:
                self.phase = Phase.RUNNING
        elif isinstance(event, RoundVerified | PlainStep | PolicyChanged):
            self._untimed[side].append(event)
        elif isinstance(event, TurnFinished):
            self._record(side, self.lanes[side].clock_s)
        elif isinstance(event, Notice) and event.level != "info":
            self.trouble = event.message

    def _record(self, side: Side, at_s: float) -> None:
        """What came without a time came with the tokens behind it."""
        told, self._untimed[side] = self._untimed[side], []
        self.recorded += [Recorded(side=side, at_s=at_s, event=event) for event in told]

    def _answered(self, event: Done | Refused) -> None:
        side = self._requests.pop(event.request_id)
        if side is None or isinstance(event, Done):
            return  # a lane that has just ended refuses to pause: that is no trouble
        self._open.discard(self.lanes[side].turn_id)
        self.phase = Phase.FAILED
        self.trouble = joined(event.message, event.hint)
        self.stop()

    def _all_ended(self) -> None:
        ends = [lane.end for lane in self.lanes.values() if lane.end is not None]
        broken = next((end for end in ends if _is_broken(end)), None)
        if broken is not None:
            self.trouble = joined(broken.message, broken.hint)
        if self.phase is not Phase.FAILED:
            self.phase = Phase.FINISHED if broken is None else Phase.FAILED
        if self._closes:
            self._free()
        elif self._restarts:
            self._restarts = False
            self.start()

    def _steer(self, kind: type[Cancel] | type[Pause] | type[Resume]) -> None:
        for side, lane in self.lanes.items():
            if lane.turn_id in self._open:
                self._send(kind(request_id=self._ask_for(None), lane=LANES[side]))

    def _free(self) -> None:
        for lane in LANES.values():
            self._send(CloseSession(request_id=self._ask_for(None), lane=lane))

    def _ask_for(self, side: Side | None) -> int:
        request_id = self._number()
        self._requests[request_id] = side
        return request_id


def _is_broken(end: TurnFinished) -> bool:
    """Whether a lane failed, or had no room for the prompt."""
    is_too_long = end.reason is FinishReason.CONTEXT_FULL and not end.ids
    return end.reason in _BROKEN or is_too_long
