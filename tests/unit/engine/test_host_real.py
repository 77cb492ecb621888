"""The real engine behind the real pipes, on a tiny model."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat.client.spawn import EngineProcess
from ds4chat.protocol.commands import Cancel, CloseSession, Load, Submit, Tokenize
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Hello,
    ModelLoading,
    ModelReady,
    Refused,
    Tokenized,
    TokensCommitted,
    TurnFinished,
)
from ds4chat.protocol.types import (
    FinishReason,
    Message,
    ModelInfo,
    Policy,
    Role,
    Sampling,
    SpecOptions,
)
from tests.grammar import TurnLog, read_turns
from tests.make_pair import PairPaths, make_pair

PATIENCE_S = 120.0  # until a test gives up; nothing waits so long
FIXED = SpecOptions(policy=Policy.FIXED)
PLAIN = SpecOptions(enabled=False, policy=Policy.FIXED)


class Engine:
    """A running engine process with the tiny pair loaded."""

    def __init__(self, pair: PairPaths, folder: Path) -> None:
        self.pair = pair
        self.link = EngineProcess(folder / "engine.log")
        self.events: list[Event] = []
        self._queue: queue.Queue[Event] = queue.Queue()
        self._n = 0

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        while True:
            event = self._queue.get(timeout=PATIENCE_S)
            self.events.append(event)
            if wanted(event):
                return event

    def start(self) -> None:
        self.link.start(self._queue.put)
        self.load()

    def load(self, **changes: object) -> Event:
        number = self.number()
        fields: dict[str, object] = {
            "model_path": str(self.pair.base), "support_path": str(self.pair.support),
            "backend": "cpu", "ctx": 512, "spec": FIXED, **changes,
        }  # fmt: skip
        self.link.send(Load(request_id=number, **fields))  # type: ignore[arg-type]
        return self.answer(number)

    def number(self) -> int:
        self._n += 1
        return self._n

    def answer(self, number: int) -> Event:
        return self.until(
            lambda event: isinstance(event, Done | Refused) and event.request_id == number
        )

    def submit(self, text: str = "The quick brown", **rest: object) -> int:
        number = self.number()
        message = Message(role=Role.USER, text=text)
        fields: dict[str, object] = {"spec": FIXED, "max_tokens": 40, **rest}
        self.link.send(Submit(request_id=number, turn_id=number, messages=(message,), **fields))  # type: ignore[arg-type]
        return number

    def reply(self, text: str = "The quick brown", **rest: object) -> TurnLog:
        turn_id = self.submit(text, **rest)
        self.until(lambda event: isinstance(event, TurnFinished) and event.turn_id == turn_id)
        return read_turns(self.events)[turn_id]

    @property
    def info(self) -> ModelInfo:
        return next(event.info for event in self.events if isinstance(event, ModelReady))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=3)


@pytest.fixture
def engine(pair: PairPaths, tmp_path: Path) -> Iterator[Engine]:
    made = Engine(pair, tmp_path)
    made.start()
    yield made
    made.link.close()


def test_loading_reports_bytes_and_what_was_opened(engine: Engine) -> None:
    loading = [event for event in engine.events if isinstance(event, ModelLoading)]
    assert loading
    assert all(event.done_bytes <= event.total_bytes for event in loading)
    assert all(event.done_tensors <= event.total_tensors for event in loading)
    assert loading[-2].total_tensors > 0 or loading[-1].total_tensors > 0
    assert engine.info.block_size > 0
    assert engine.info.ctx == 512


def test_speculative_and_plain_replies_are_equal(engine: Engine) -> None:
    fast = engine.reply()
    slow = engine.reply(spec=PLAIN)
    assert fast.end.ids == slow.end.ids
    assert len(fast.end.ids) == 40
    assert fast.rounds
    assert not slow.rounds
    warm = Sampling(temperature=0.8, seed=5)
    hot = engine.reply(sampling=warm)
    assert hot.end.ids == engine.reply(sampling=warm, spec=PLAIN).end.ids
    assert hot.end.ids != fast.end.ids


def test_the_conversation_goes_on_from_the_cache(engine: Engine) -> None:
    first = engine.reply(max_tokens=8)
    question = Message(role=Role.USER, text="The quick brown")
    reply = Message(role=Role.ASSISTANT, text=first.answer, ids=first.end.ids)
    more = Message(role=Role.USER, text="fox")
    number = engine.number()
    engine.link.send(
        Submit(
            request_id=number, turn_id=number, messages=(question, reply, more),
            max_tokens=4, spec=FIXED,
        )
    )  # fmt: skip
    engine.until(lambda event: isinstance(event, TurnFinished) and event.turn_id == number)
    log = read_turns(engine.events)[number]
    assert log.started.n_cached == first.started.n_prompt + 8


def test_lanes_are_independent(engine: Engine) -> None:
    alone = engine.reply(max_tokens=20).end.ids
    left = engine.submit(lane=1, max_tokens=20)
    right = engine.submit(lane=2, max_tokens=20, spec=PLAIN)
    ended: set[int] = set()
    while ended != {left, right}:
        event = engine.until(lambda event: isinstance(event, TurnFinished))
        assert isinstance(event, TurnFinished)
        ended.add(event.turn_id)
    logs = read_turns(engine.events)
    assert logs[left].end.ids == logs[right].end.ids == alone
    number = engine.number()
    engine.link.send(CloseSession(request_id=number, lane=1))
    assert engine.answer(number) == Done(request_id=number)


def test_cancel_then_the_same_question_again(engine: Engine) -> None:
    engine.submit(max_tokens=400)
    engine.until(lambda event: isinstance(event, TokensCommitted))
    engine.link.send(Cancel(request_id=engine.number()))
    event = engine.until(lambda event: isinstance(event, TurnFinished))
    assert isinstance(event, TurnFinished)
    assert event.reason is FinishReason.CANCELLED
    again = engine.reply(max_tokens=len(event.ids))
    assert again.end.ids == event.ids


def test_the_context_limit_is_kept(engine: Engine) -> None:
    engine.load(ctx=48)
    log = engine.reply(max_tokens=400)
    assert log.end.reason in (FinishReason.CONTEXT_FULL, FinishReason.STOP)
    assert log.end.usage.n_context <= 48


def test_tokenize(engine: Engine) -> None:
    number = engine.number()
    engine.link.send(Tokenize(request_id=number, text="The quick"))
    assert engine.answer(number) == Done(request_id=number)
    (found,) = [event for event in engine.events if isinstance(event, Tokenized)]
    assert "".join(found.texts) == "The quick"


def test_a_bad_file_is_refused_and_the_engine_lives(engine: Engine, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF")
    answer = engine.load(model_path=str(bad), support_path="")
    assert isinstance(answer, Refused)
    assert "bad.gguf" in answer.message
    assert engine.load() == Done(request_id=engine._n)
    assert len(engine.reply(max_tokens=3).end.ids) == 3


def test_a_bad_support_file_leaves_plain_decoding(engine: Engine, tmp_path: Path) -> None:
    fast = engine.reply(max_tokens=12)
    engine.events.clear()
    engine.load(support_path=str(engine.pair.base))
    assert engine.info.block_size == 0
    assert engine.reply(max_tokens=12).end.ids == fast.end.ids


def test_killed_in_mid_reply_restarted_and_asked_again(engine: Engine) -> None:
    before = engine.reply(max_tokens=12).end.ids
    hello = next(event for event in engine.events if isinstance(event, Hello))
    engine.submit(max_tokens=400)
    engine.until(lambda event: isinstance(event, TokensCommitted))
    os.kill(hello.pid, signal.SIGKILL)
    engine.until(lambda event: isinstance(event, EngineFailed))
    engine.link.restart()
    engine.load()
    assert engine.reply(max_tokens=12).end.ids == before
