"""Lanes that take turns: each one's own clock is what it would be alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.demo import ScriptedEngine as Demo
from ds4chat.engine.api import Progress
from ds4chat.engine.host import EXIT_OK, Host
from ds4chat.engine.host_inbox import Inbox
from ds4chat.engine.host_open import HostedEngine, LoadProgress
from ds4chat.protocol.codec import decode_event, encode
from ds4chat.protocol.commands import Cancel, Command, Load, Pause, Resume, Shutdown, Submit
from ds4chat.protocol.events import (
    Event,
    ModelReady,
    Refused,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import (
    FinishReason,
    Message,
    Role,
    SpecOptions,
    ThinkMode,
    Token,
    Usage,
)
from tests.grammar import read_turns
from tests.scripted_engine import ScriptedEngine, ScriptedSession

PLAIN, SPEC = 1, 2
STEP_S, ROUND_S, PREFILL_S, LOOK_S = 0.02, 0.036, 1.5, 0.0001
TEXT = "say " + "one two three four five six seven eight nine ten. " * 6


class Clock:
    """Moves when the engine works, and a little whenever somebody looks."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.prefills = [PREFILL_S] * 9  # of one session after the other

    def __call__(self) -> float:
        self.now_s += LOOK_S
        return self.now_s


class TimedSession(ScriptedSession):
    """Takes engine time for prefill, plain steps and rounds."""

    def __init__(self, engine: ScriptedEngine, clock: Clock) -> None:
        super().__init__(engine)
        self._clock = clock

    def sync(self, ids: Sequence[int], *, progress: Progress | None = None) -> int:
        self._clock.now_s += self._clock.prefills.pop(0)
        return super().sync(ids, progress=progress)

    def step(self, token: int) -> Token:
        self._clock.now_s += STEP_S
        return super().step(token)

    def speculate(
        self, first_token: int, max_tokens: int, *, proposal: Sequence[int] | None = None
    ) -> list[Token]:
        before_s = self._clock.now_s
        tokens = super().speculate(first_token, max_tokens, proposal=proposal)
        if self._clock.now_s == before_s:  # else it was a plain step
            self._clock.now_s += ROUND_S
        return tokens


class TimedEngine(ScriptedEngine):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.asked: list[bool] = []

    def session(
        self,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        drafts: bool = True,
    ) -> ScriptedSession:
        self.asked.append(drafts)
        return TimedSession(self, self._clock)


def submit(lane: int, *, max_tokens: int | None = None) -> Submit:
    return Submit(
        request_id=lane,
        turn_id=lane,
        lane=lane,
        messages=(Message(role=Role.USER, text=TEXT),),
        think=ThinkMode.OFF,
        spec=SpecOptions(enabled=lane == SPEC),
        max_tokens=max_tokens,
    )


class Race:
    """A host over a timed engine. `when(n, ...)` sends commands after the n-th token event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.engines: list[TimedEngine] = []
        self._clock = Clock()
        self._later: list[tuple[int, Command]] = []
        self._n_turns = 0
        self._inbox = Inbox(self._emit, on_end=lambda: None)
        self._host = Host(self._inbox, self._emit, self._open, clock=self._clock)

    def _open(self, load: Load, progress: LoadProgress) -> HostedEngine:
        self.engines.append(TimedEngine(self._clock))
        return self.engines[-1]

    def after(self, n_texts: int, *commands: Command) -> None:
        self._later += [(n_texts, command) for command in commands]

    def run(self, *submits: Submit) -> dict[int, Usage]:
        self._n_turns = len(submits)
        self._put(Load(request_id=90, model_path="timed"), *submits)
        assert self._host.run() == EXIT_OK
        return {e.turn_id: e.usage for e in self.events if isinstance(e, TurnFinished)}

    def _put(self, *commands: Command) -> None:
        for command in commands:
            self._inbox._take(encode(command).encode())

    def _emit(self, event: Event) -> None:
        self.events.append(decode_event(encode(event)))
        due = [c for n, c in self._later if n <= len(self.texts())]
        self._later = self._later[len(due) :]
        self._put(*due)
        n_finished = sum(isinstance(e, TurnFinished) for e in self.events)
        if isinstance(event, TurnFinished) and n_finished == self._n_turns:
            self._put(Shutdown(request_id=99))

    def texts(self) -> list[TokensCommitted]:
        return [event for event in self.events if isinstance(event, TokensCommitted)]


@pytest.mark.parametrize("lane", [PLAIN, SPEC])
def test_a_lanes_speed_is_what_it_is_alone(lane: int) -> None:
    together = Race().run(submit(SPEC), submit(PLAIN))[lane]
    alone = Race().run(submit(lane))[lane]
    assert together.n_tokens == alone.n_tokens > 100
    speeds = [usage.n_tokens / usage.decode_s for usage in (together, alone)]
    assert speeds[0] == pytest.approx(speeds[1], rel=0.05)
    assert together.decode_s < together.n_tokens * (STEP_S + 20 * LOOK_S)


def test_the_lanes_keep_abreast_on_their_clocks() -> None:
    race = Race()
    race.run(submit(SPEC), submit(PLAIN))
    clocks = {PLAIN: 0.0, SPEC: 0.0}
    n_done = 0
    for event in race.events:
        if isinstance(event, TokensCommitted):
            assert event.at_s > clocks[event.turn_id]
            clocks[event.turn_id] = event.at_s
            if n_done == 0:
                assert abs(clocks[PLAIN] - clocks[SPEC]) <= ROUND_S + STEP_S + 30 * LOOK_S
        n_done += isinstance(event, TurnFinished)


def test_a_lane_without_drafts_has_a_session_without_them() -> None:
    race = Race()
    race.run(submit(SPEC), replace(submit(PLAIN), drafts=False))
    assert race.engines[0].asked == [True, False]


def test_reading_a_prompt_gives_no_lane_a_lead() -> None:
    race = Race()
    race._clock.prefills = [PREFILL_S, 0.0]
    race.run(submit(SPEC), submit(PLAIN))
    first = [event.turn_id for event in race.texts()[:8]]
    assert set(first) == {PLAIN, SPEC}
    assert max(e.at_s for e in race.texts()[:8]) < PREFILL_S / 4


def test_both_prompts_are_read_before_anybody_decodes() -> None:
    race = Race()
    usages = race.run(submit(SPEC), submit(PLAIN))
    kinds = [type(e) for e in race.events if isinstance(e, TurnStarted | TokensCommitted)]
    assert kinds[:2] == [TurnStarted, TurnStarted]
    for usage in usages.values():
        assert usage.prefill_s >= PREFILL_S
        assert usage.decode_s < 10


def test_the_clock_of_the_last_token_is_the_decode_time() -> None:
    race = Race()
    usages = race.run(submit(SPEC), submit(PLAIN))
    for lane, usage in usages.items():
        last = [event for event in race.texts() if event.turn_id == lane][-1]
        assert last.at_s == pytest.approx(usage.decode_s, abs=40 * LOOK_S)


def test_a_paused_lane_waits_and_loses_no_time() -> None:
    race = Race()
    race.after(6, Pause(request_id=50, lane=PLAIN))
    race.after(30, Resume(request_id=51, lane=PLAIN))
    paused = race.run(submit(SPEC), submit(PLAIN))[PLAIN]
    alone = Race().run(submit(PLAIN))[PLAIN]
    assert paused.decode_s == pytest.approx(alone.decode_s, rel=0.05)
    assert {event.turn_id for event in race.texts()[8:28]} == {SPEC}


def test_when_all_lanes_wait_only_commands_go_on() -> None:
    race = Race()
    race.after(4, Pause(request_id=50, lane=SPEC), Cancel(request_id=51, lane=SPEC))
    usages = race.run(submit(SPEC))
    assert 0 < usages[SPEC].n_tokens < 40
    ends = [event for event in race.events if isinstance(event, TurnFinished)]
    assert [event.reason for event in ends] == [FinishReason.CANCELLED]


def test_pausing_an_idle_lane_is_refused() -> None:
    race = Race()
    race.after(2, Pause(request_id=50, lane=7))
    race.run(submit(PLAIN, max_tokens=9))
    refused = [event for event in race.events if isinstance(event, Refused)]
    assert [event.request_id for event in refused] == [50]


def run_demo(*commands: Command, n_turns: int) -> list[Event]:
    events: list[Event] = []
    is_ready, is_over = threading.Event(), threading.Event()

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, ModelReady):
            is_ready.set()
        if sum(isinstance(e, TurnFinished) for e in events) == n_turns:
            is_over.set()

    demo = Demo(Script(replies=(Reply(answer=TEXT),)), pace=0)
    demo.start(emit)
    demo.send(Load(request_id=90, model_path=""))
    assert is_ready.wait(30)
    for command in commands:
        demo.send(command)
    assert is_over.wait(30)
    demo.close()
    return events


def test_the_scripted_engine_lets_lanes_take_turns_too() -> None:
    events = run_demo(submit(SPEC), submit(PLAIN), n_turns=2)
    turns = read_turns(events)
    assert turns[PLAIN].answer == turns[SPEC].answer == TEXT
    assert not turns[PLAIN].rounds
    assert turns[SPEC].rounds
    texts = [event for event in events if isinstance(event, TokensCommitted)]
    clocks = {PLAIN: 0.0, SPEC: 0.0}
    for event in texts:
        clocks[event.turn_id] = event.at_s
        if not any(clock == turns[lane].end.usage.decode_s for lane, clock in clocks.items()):
            assert abs(clocks[PLAIN] - clocks[SPEC]) < 0.06


def test_a_paused_scripted_lane_waits_until_it_is_cancelled() -> None:
    pause = (submit(SPEC), Pause(request_id=50, lane=SPEC), submit(PLAIN, max_tokens=9))
    events = run_demo(*pause, Cancel(request_id=51, lane=SPEC), n_turns=2)
    end = read_turns(events)[SPEC].end
    assert end.reason is FinishReason.CANCELLED
