"""Whatever is asked of a running turn, its events obey the grammar; and the checker checks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.demo import TOUR, ScriptedEngine
from ds4chat.engine.host import Host
from ds4chat.engine.host_inbox import Inbox
from ds4chat.protocol.codec import decode_event, encode
from ds4chat.protocol.commands import (
    Cancel,
    Command,
    Load,
    Pause,
    Resume,
    SetSpeculation,
    Shutdown,
    StopThinking,
    Submit,
    Tokenize,
)
from ds4chat.protocol.events import (
    Done,
    Event,
    PlainStep,
    PrefillProgress,
    Refused,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Message,
    Role,
    Source,
    Span,
    SpecOptions,
    ThinkMode,
    Token,
    Usage,
)
from tests.grammar import read_turns
from tests.scripted_engine import open_scripted

TEXTS = ("tell", "say yes", "endless", "raise", "nan", "say ", "tell me " * 12)

submits = st.builds(
    Submit,
    request_id=st.just(0),
    turn_id=st.just(0),
    messages=st.sampled_from(TEXTS).map(lambda text: (Message(role=Role.USER, text=text),)),
    lane=st.integers(0, 1),
    think=st.sampled_from(ThinkMode),
    spec=st.builds(SpecOptions, enabled=st.booleans()),
    max_tokens=st.integers(1, 60),
    stop=st.sampled_from([(), ("fox",), ("😀", "7")]),
)
steering = st.one_of(
    st.builds(Cancel, request_id=st.just(0), lane=st.integers(0, 1)),
    st.builds(Pause, request_id=st.just(0), lane=st.integers(0, 1)),
    st.builds(Resume, request_id=st.just(0), lane=st.integers(0, 1)),
    st.builds(StopThinking, request_id=st.just(0), lane=st.integers(0, 1)),
    st.builds(
        SetSpeculation,
        request_id=st.just(0),
        spec=st.builds(SpecOptions, enabled=st.booleans()),
        lane=st.integers(0, 1),
    ),
    st.builds(Tokenize, request_id=st.just(0), text=st.just("naïve")),
)


class Replay:
    """A host on this thread whose commands come after given numbers of events."""

    def __init__(self, script: list[tuple[int, Command]], ctx: int) -> None:
        self.events: list[Event] = []
        self.sent: list[int] = []
        self._todo = sorted(script, key=lambda item: item[0])
        self._n_open = 0
        ticks = itertools.count()
        self.inbox = Inbox(self.emit, on_end=lambda: None)
        self.host = Host(self.inbox, self.emit, open_scripted, clock=lambda: next(ticks) * 0.03)
        self.send(Load(request_id=0, model_path="scripted", ctx=ctx))

    def emit(self, event: Event) -> None:
        self.events.append(decode_event(encode(event)))
        while self._todo and self._todo[0][0] <= len(self.events):
            self.send(self._todo.pop(0)[1])

    def send(self, command: Command) -> None:
        number = len(self.sent) + 1
        self.sent.append(number)
        if isinstance(command, Submit):
            command = replace(command, turn_id=number)
        self.inbox._take(encode(replace(command, request_id=number)).encode())

    def run(self) -> list[Event]:
        self.host._carry_out(self.inbox.get())  # type: ignore[arg-type]  # the Load
        while self._todo or self.host._turns or not self.inbox.is_empty:
            if not self.host._turns and self.inbox.is_empty:
                self.send(self._todo.pop(0)[1])
            elif self.inbox.is_empty:
                self.host._advance()
            else:
                self.host._carry_out(self.inbox.get())  # type: ignore[arg-type]
        return self.events


@settings(max_examples=60, deadline=None)
@given(
    asked=st.lists(st.tuples(st.integers(0, 30), submits), min_size=1, max_size=4),
    steered=st.lists(st.tuples(st.integers(0, 60), steering), max_size=6),
    ctx=st.integers(16, 200),
)
def test_any_use_of_the_host_obeys_the_grammar(
    asked: list[tuple[int, Command]], steered: list[tuple[int, Command]], ctx: int
) -> None:
    replay = Replay([*asked, *steered], ctx)
    events = replay.run()
    read_turns(events)
    answered = [event.request_id for event in events if isinstance(event, Done | Refused)]
    assert sorted(answered) == replay.sent


def test_the_scripted_engine_obeys_the_same_grammar() -> None:
    events: list[Event] = []
    engine = ScriptedEngine(TOUR, pace=0)
    engine.start(events.append)
    engine.send(Load(request_id=1, model_path=""))
    message = Message(role=Role.USER, text="hello")
    engine.send(Submit(request_id=2, turn_id=1, messages=(message,)))
    engine.send(Shutdown(request_id=3))
    engine.close()
    logs = read_turns(events)
    assert set(logs) <= {1}


TOKEN = Token(id=7, source=Source.PLAIN, round=0, position=0, confidence=None, margin=1.0)
STARTED = TurnStarted(turn_id=1, lane=0, n_prompt=3, n_cached=0)
SPOKE = TokensCommitted(turn_id=1, channel=Channel.ANSWER, spans=(Span(text="a", token=TOKEN),))
STEPPED = PlainStep(turn_id=1, step_s=0.1, reason="plain")
PROGRESS = PrefillProgress(turn_id=1, n_done=1, n_total=3, elapsed_s=0.1)
FINISHED = TurnFinished(
    turn_id=1, reason=FinishReason.STOP, usage=Usage(n_tokens=1, n_plain_steps=1), ids=(7,)
)
GOOD: list[Event] = [STARTED, PROGRESS, STEPPED, SPOKE, FINISHED]


def test_the_checker_takes_a_good_turn() -> None:
    assert read_turns(GOOD)[1].answer == "a"


@pytest.mark.parametrize(
    "events",
    [
        [PROGRESS, *GOOD],
        GOOD[1:],
        GOOD[:-1],
        [*GOOD, SPOKE],
        [*GOOD, FINISHED],
        [STARTED, *GOOD],
        [STARTED, SPOKE, PROGRESS, STEPPED, FINISHED],
        [STARTED, STEPPED, SPOKE, SPOKE, FINISHED],
        [STARTED, SPOKE, FINISHED],
        [STARTED, replace(STARTED, turn_id=2), *GOOD[1:]],
        [*GOOD[:-1], replace(FINISHED, ids=(8,))],
    ],
    ids=range(11),
)
def test_the_checker_refuses_a_bad_one(events: list[Event]) -> None:
    with pytest.raises(AssertionError):
        read_turns(events)
