"""The engine process from the client's side, with real processes."""

from __future__ import annotations

import os
import queue
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat.client import spawn
from ds4chat.client.spawn import EngineProcess, host_command
from ds4chat.errors import EngineError
from ds4chat.protocol.commands import Cancel, Load, Shutdown, Submit, Tokenize
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Hello,
    ModelReady,
    Notice,
    Refused,
    Tokenized,
    TokensCommitted,
    TurnFinished,
)
from ds4chat.protocol.types import FinishReason, Message, Role
from tests.grammar import read_turns
from tests.scripted_engine import TALE

SCRIPTED = [sys.executable, "-m", "tests.scripted_engine"]
HELLO = """import sys
print('{"type": "Hello", "protocol_version": 1, "build": "x", "pid": 1}', flush=True)
sys.stdin.read()
"""
PATIENCE_S = 60.0  # until a test gives up; nothing waits so long


class Line:
    """An `EngineProcess` and a queue of its events."""

    def __init__(self, log_path: Path, command: list[str]) -> None:
        self.engine = EngineProcess(log_path, [*command, "--log", str(log_path)])
        self.events: list[Event] = []
        self._queue: queue.Queue[Event] = queue.Queue()

    def emit(self, event: Event) -> None:
        self._queue.put(event)

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        while True:
            event = self._queue.get(timeout=PATIENCE_S)
            self.events.append(event)
            if wanted(event):
                return event

    def until_is(self, kind: type[Event]) -> Event:
        return self.until(lambda event: isinstance(event, kind))

    def rest(self) -> list[Event]:
        while not self._queue.empty():
            self.events.append(self._queue.get())
        return self.events

    def open(self) -> None:
        self.engine.start(self.emit)
        self.until_is(Hello)
        self.load()

    def load(self) -> None:
        self.engine.send(Load(request_id=1, model_path="scripted.gguf"))
        self.until(lambda event: event == Done(request_id=1))

    def submit(self, text: str, turn_id: int = 1) -> None:
        message = Message(role=Role.USER, text=text)
        self.engine.send(Submit(request_id=turn_id, turn_id=turn_id, messages=(message,)))


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path / "engine.log", SCRIPTED)
    yield made
    made.engine.close()


def other(tmp_path: Path, program: str) -> Line:
    return Line(tmp_path / "engine.log", [sys.executable, "-c", program])


def test_load_ask_answer(line: Line) -> None:
    line.open()
    line.submit("tell")
    line.until_is(TurnFinished)
    (log,) = read_turns(line.events).values()
    assert log.answer == TALE
    ready = [event for event in line.events if isinstance(event, ModelReady)]
    assert ready[0].info.name == "scripted"


def test_cancel_reaches_a_running_reply(line: Line) -> None:
    line.open()
    line.submit("endless")
    line.until_is(TokensCommitted)
    line.engine.send(Cancel(request_id=5))
    finished = line.until_is(TurnFinished)
    assert isinstance(finished, TurnFinished)
    assert finished.reason is FinishReason.CANCELLED
    assert finished.ids


def test_a_library_that_prints_breaks_nothing(line: Line) -> None:
    line.open()
    line.submit("print")
    line.until_is(TurnFinished)
    (log,) = read_turns(line.events).values()
    assert log.answer == TALE
    assert not [event for event in line.rest() if isinstance(event, Notice)]


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSEGV])
def test_death_in_mid_reply_is_told_once_and_restart_works(
    line: Line, blow: signal.Signals
) -> None:
    line.open()
    hello = line.events[0]
    assert isinstance(hello, Hello)
    line.submit("endless")
    line.until_is(TokensCommitted)
    os.kill(hello.pid, blow)
    failed = line.until_is(EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert f"killed by {blow.name}" in failed.message
    assert failed.fatal
    assert blow.name in Path(failed.log_path).read_text()
    (log,) = read_turns(line.events).values()
    assert log.end.reason is FinishReason.ERROR
    assert log.end.ids
    assert not line.engine.is_alive
    line.engine.send(Tokenize(request_id=9, text="x"))
    assert isinstance(line.until_is(Refused), Refused)

    line.engine.restart()
    line.until_is(Hello)
    line.load()
    line.submit("tell", turn_id=2)
    line.until_is(TurnFinished)
    line.engine.close()
    assert read_turns(line.rest())[2].answer == TALE
    assert len([event for event in line.events if isinstance(event, EngineFailed)]) == 1


def test_a_crash_of_its_own_leaves_no_command_unanswered(line: Line) -> None:
    line.open()
    line.submit("crash")
    line.engine.send(Tokenize(request_id=7, text="x"))
    line.until_is(EngineFailed)
    answers = [e for e in line.events if isinstance(e, Done | Refused | Tokenized)]
    assert any(answer.request_id == 7 for answer in answers)


def test_close_ends_the_process_in_a_reply_and_in_a_hung_prefill(line: Line) -> None:
    for text in ("endless", "hang"):
        line.open()
        process = line.engine._life._process  # type: ignore[union-attr]
        line.submit(text)
        line.until(lambda event: event == Done(request_id=1))
        line.engine.close()
        line.engine.close()
        process.wait(PATIENCE_S)  # killed, though a busy machine may take its time with that
        assert not line.engine.is_alive
    n_events = len(line.rest())
    assert not [event for event in line.events if isinstance(event, EngineFailed)]
    assert len(line.rest()) == n_events


def test_what_is_told_late_is_told_before_close_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine lets the thread that reads wait, and not the one that closes."""
    monkeypatch.setattr(spawn, "_PATIENCE_S", (PATIENCE_S, 0.0, 0.0))
    line = other(tmp_path, HELLO)
    has_ended = threading.Event()
    monkeypatch.setattr(spawn._Life, "_kill_group", lambda _: has_ended.set())

    def emit(event: Event) -> None:
        has_ended.wait(PATIENCE_S)
        line.emit(event)

    line.engine.start(emit)
    line.engine.send(Tokenize(request_id=7, text="x"))
    line.engine.close()
    (answer,) = [event for event in line.rest() if isinstance(event, Refused)]
    assert answer.request_id == 7


def test_a_shutdown_of_the_screens_own_is_no_failure(line: Line) -> None:
    line.open()
    life = line.engine._life
    assert life is not None
    line.engine.send(Shutdown(request_id=3))
    line.until(lambda event: event == Done(request_id=3))
    life._reader.join(PATIENCE_S)
    assert not [event for event in line.rest() if isinstance(event, EngineFailed)]


class Fleeting(EngineProcess):
    """Closed by another thread as soon as somebody has looked at it."""

    held: spawn._Life | None = None

    @property
    def _life(self) -> spawn._Life | None:
        life, self.held = self.held, None
        return life

    @_life.setter
    def _life(self, life: spawn._Life | None) -> None:
        self.held = life


def test_a_command_in_the_moment_of_the_close_is_answered(tmp_path: Path) -> None:
    line = other(tmp_path, HELLO)
    line.engine = engine = Fleeting(tmp_path / "log", line.engine._command)
    engine.start(line.emit)
    line.until_is(Hello)
    life = engine.held
    assert life is not None
    engine.send(Tokenize(request_id=7, text="x"))
    engine.held = life
    assert engine.is_alive
    life.close()
    assert any(isinstance(event, Refused) for event in line.rest())


def test_who_hears_the_first_event_can_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = other(tmp_path, HELLO)
    told = threading.Event()

    class Eager(threading.Thread):
        """The machine goes on with a new thread first."""

        def start(self) -> None:
            super().start()
            if self.name == "engine-events":
                told.wait(PATIENCE_S)

    def emit(event: Event) -> None:
        line.emit(event)
        if isinstance(event, Hello):
            line.engine.send(Tokenize(request_id=7, text="x"))
            told.set()

    monkeypatch.setattr(threading, "Thread", Eager)
    line.engine.start(emit)
    line.engine.close()
    (answer,) = [event for event in line.rest() if isinstance(event, Refused)]
    assert answer.message == "the engine was closed"


def test_no_event_comes_after_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor while it returns: a thread that has just begun to tell is waited for."""
    monkeypatch.setattr(spawn, "_PATIENCE_S", (0.0, 0.0, 0.0))
    line = other(tmp_path, HELLO)
    is_telling, may_go_on, is_closed = (threading.Event() for _ in range(3))
    was_late: list[bool] = []

    def emit(event: Event) -> None:
        is_telling.set()
        may_go_on.wait(PATIENCE_S)
        was_late.append(is_closed.is_set())

    line.engine.start(emit)
    reader = line.engine._life._reader  # type: ignore[union-attr]
    assert is_telling.wait(PATIENCE_S)

    def close() -> None:
        line.engine.close()
        is_closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    is_closed.wait(0.2)  # it never is; before, it was at once
    may_go_on.set()
    closing.join()
    reader.join(PATIENCE_S)
    assert was_late == [False]


def test_before_the_start(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "log")
    engine.close()
    assert not engine.is_alive
    with pytest.raises(EngineError):
        engine.send(Tokenize(request_id=1, text=""))
    with pytest.raises(EngineError):
        engine.restart()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    line = Line(tmp_path / "log", [str(tmp_path / "nothing")])
    line.engine.start(line.emit)
    failed = line.until_is(EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert "cannot be started" in failed.message
    line.engine.send(Tokenize(request_id=1, text=""))
    assert isinstance(line.until_is(Refused), Refused)


def test_the_last_words_of_a_failed_start_are_shown(tmp_path: Path) -> None:
    line = other(tmp_path, "import sys; print('no MLX here', file=sys.stderr); sys.exit(4)")
    line.engine.start(line.emit)
    failed = line.until_is(EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert failed.message == "the engine ended with exit code 4: no MLX here"
    *_, last = (tmp_path / "engine.log").read_text().splitlines()
    assert re.fullmatch(r"[\d-]+ [\d:]+ \d+ ERROR no MLX here", last)


def test_garbage_from_the_engine_is_a_notice(tmp_path: Path) -> None:
    line = other(tmp_path, 'print(\'[1]\'); print(\'{"type": "Done", "request_id": 1}\')')
    line.engine.start(line.emit)
    line.until_is(EngineFailed)
    assert isinstance(line.events[0], Notice)
    assert line.events[1] == Done(request_id=1)


def test_another_protocol_version_is_refused(tmp_path: Path) -> None:
    hello = '{"type": "Hello", "protocol_version": 99, "build": "x", "pid": 1}'
    line = other(tmp_path, f"import sys; print('{hello}', flush=True); sys.stdin.read()")
    line.engine.start(line.emit)
    failed = line.until_is(EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert "version 99, wanted 1" in failed.message
    assert line.events == [failed]


def test_the_working_directory_cannot_stand_in_for_a_library(tmp_path: Path) -> None:
    assert "-P" in host_command(tmp_path)
