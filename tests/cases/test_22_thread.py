"""All MLX work of an engine process happens on one thread, whatever is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.host import EXIT_OK, Host
from ds4chat.engine.host_inbox import Inbox
from ds4chat.engine.host_open import open_engine
from ds4chat.errors import EngineError
from ds4chat.protocol.codec import encode
from ds4chat.protocol.commands import (
    Cancel,
    CloseSession,
    Command,
    Load,
    RestoreSnapshot,
    SaveSnapshot,
    Shutdown,
    Submit,
    Tokenize,
)
from ds4chat.protocol.events import Event, Refused, TokensCommitted, TurnFinished
from ds4chat.protocol.types import FinishReason, Message, Role
from tests.cases.replies import FIXED, VERY_SMALL, open_small
from tests.engines import random_ids
from tests.make_pair import PairPaths, make_pair

EVALUATORS = ("eval", "async_eval", "array", "zeros", "concatenate")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that call MLX."""
    seen: set[int] = set()

    def spy(name: str) -> None:
        real = getattr(mx, name)
        if isinstance(real, type):
            return  # `mx.array` is also used to ask for types

        def call(*args: Any, **rest: Any) -> Any:
            seen.add(threading.get_ident())
            return real(*args, **rest)

        monkeypatch.setattr(mx, name, call)

    for name in EVALUATORS:
        spy(name)
    return seen


class Hosted:
    """A host over the real engine on a thread of its own; commands come from this one."""

    def __init__(self, pair: PairPaths) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()
        self.inbox = Inbox(self._emit, lambda: None)
        self.host = Host(self.inbox, self._emit, open_engine)
        self.status: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.n = 0
        self.doomed = 0  # a turn that is cancelled at its first tokens
        self.put(
            Load,
            model_path=str(pair.base), support_path=str(pair.support), backend="cpu", ctx=512,
            spec=FIXED,
        )  # fmt: skip

    def _run(self) -> None:
        self.status = self.host.run()

    def _emit(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()
        if isinstance(event, TokensCommitted) and event.turn_id == self.doomed:
            self.doomed = 0
            self.put(Cancel, lane=0)  # before the reply goes on

    def put(self, kind: Callable[..., Command], **fields: Any) -> int:
        self.n += 1
        line = encode(kind(request_id=self.n, **fields)).encode()
        reader = threading.Thread(target=self.inbox._take, args=(line,))
        reader.start()  # as commands come in the process: from another thread
        reader.join()
        return self.n

    def ask(self, text: str, *messages: Message, lane: int = 0, n: int = 12) -> int:
        question = Message(role=Role.USER, text=text)
        return self.put(
            Submit, turn_id=self.n + 1, lane=lane, messages=(*messages, question),
            spec=FIXED, max_tokens=n, ignore_end=True,
        )  # fmt: skip

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        with self._news:
            assert self._news.wait_for(lambda: any(map(wanted, self.events)), timeout=120)
            return next(event for event in self.events if wanted(event))

    def end_of(self, turn_id: int) -> TurnFinished:
        event = self.until(lambda e: isinstance(e, TurnFinished) and e.turn_id == turn_id)
        assert isinstance(event, TurnFinished)
        return event

    def close(self) -> None:
        self.put(Shutdown)
        self.thread.join(60)
        assert self.status == EXIT_OK


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=3, **VERY_SMALL)


def test_everything_a_chat_asks_for_runs_on_the_engines_thread(
    pair: PairPaths, threads: set[int], tmp_path: Path
) -> None:
    """Load, answer, cancel, answer, switch session, save, resume."""
    hosted = Hosted(pair)
    first = hosted.end_of(hosted.ask("one"))
    assert len(first.ids) == 12
    hosted.doomed = hosted.n + 1
    long = hosted.ask("endless", n=400)
    assert hosted.end_of(long).reason is FinishReason.CANCELLED
    assert hosted.end_of(hosted.ask("one")).ids == first.ids
    assert len(hosted.end_of(hosted.ask("other", lane=1)).ids) == 12
    hosted.put(Tokenize, text="some text")
    hosted.put(SaveSnapshot, folder=str(tmp_path), name="t1")
    hosted.put(CloseSession, lane=0)
    said = Message(role=Role.ASSISTANT, text="x", ids=first.ids)
    question = Message(role=Role.USER, text="one")
    hosted.put(RestoreSnapshot, folder=str(tmp_path), names=("t1",), messages=(question, said))
    assert len(hosted.end_of(hosted.ask("two", question, said)).ids) == 12
    hosted.close()
    assert [e.message for e in hosted.events if isinstance(e, Refused)] == []
    assert threads == {hosted.thread.ident}


def test_loading_another_model_stays_on_that_thread(pair: PairPaths, threads: set[int]) -> None:
    hosted = Hosted(pair)
    hosted.end_of(hosted.ask("one"))
    hosted.put(Load, model_path=str(pair.base), backend="cpu", ctx=256)
    hosted.put(Load, model_path=str(pair.support), backend="cpu", ctx=256)  # refused
    hosted.put(Load, model_path=str(pair.base), support_path=str(pair.support), backend="cpu")
    assert hosted.end_of(hosted.ask("one")).ids
    hosted.close()
    assert threads == {hosted.thread.ident}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair")) as opened:
        yield opened


CALLS: dict[str, Callable[[Engine, Any], object]] = {
    "session": lambda engine, session: engine.session(),
    "sync": lambda engine, session: session.sync([3, 4]),
    "choose": lambda engine, session: session.choose(),
    "logits": lambda engine, session: session.logits(),
    "step": lambda engine, session: session.step(5),
    "speculate": lambda engine, session: session.speculate(5, 8),
    "state": lambda engine, session: session.state(),
    "poison": lambda engine, session: session.poison(),
    "kv_bytes": lambda engine, session: session.kv_bytes(),
    "session close": lambda engine, session: session.close(),
    "engine close": lambda engine, session: engine.close(),
    "measure": lambda engine, session: engine.measure(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_from_another_thread_is_refused_in_words(engine: Engine, name: str) -> None:
    session = engine.session()
    session.sync(random_ids(engine, 9))
    errors: list[BaseException] = []

    def call() -> None:
        try:
            CALLS[name](engine, session)
        except EngineError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [("another thread" in str(error)) for error in errors] == [True]
    assert session.choose() >= 0, "the refused call spoiled the session"
