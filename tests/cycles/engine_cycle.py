"""A cycle of the engine process alone, through the client that the program uses."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ds4chat import paths, settings
from ds4chat.client.spawn import EngineProcess
from ds4chat.protocol.commands import (
    Cancel,
    Command,
    Load,
    RestoreSnapshot,
    SaveSnapshot,
    Shutdown,
    Submit,
)
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Hello,
    ModelLoading,
    Refused,
    SnapshotSaved,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import FinishReason, Message, Role
from tests.cycles.left import nobody_holds, snapshots_are_whole, wanted
from tests.cycles.plan import Act, Moment, Plan
from tests.grammar import read_turns
from tests.make_pair import PairPaths

PATIENCE_S = 240.0  # until a cycle is given up; nothing waits so long
MAX_TOKENS = 32
SIGNALS = {Act.TERM: signal.SIGTERM, Act.HUP: signal.SIGHUP, Act.INT: signal.SIGINT,
           Act.KILL: signal.SIGKILL}  # fmt: skip
DEADLY = (Act.TERM, Act.HUP, Act.KILL)

E = TypeVar("E")


class Engine:
    """The real engine process and what it said."""

    def __init__(self, pair: PairPaths) -> None:
        dirs = paths.UserDirs.from_variables(settings.path_variables())
        self.pair = pair
        self.link = EngineProcess(dirs.log_dir() / "engine.log")
        self.said: list[Event] = []  # of this life
        self.was_killed = False  # in some life, by whomever
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._sent: list[int] = []

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process, which may not have said Hello yet."""
        life = self.link._life
        return life._process if life is not None else None

    def start(self) -> None:
        self.link.start(self._events.put)

    def restart(self) -> None:
        self.close()
        self.said, self._sent = [], []
        self.start()

    def send(self, make: Callable[[int], Command]) -> int:
        number = next(self._numbers)
        self._sent.append(number)
        self.link.send(make(number))
        return number

    def load(self) -> int:
        return self.send(
            lambda n: Load(
                request_id=n, model_path=str(self.pair.base), backend="cpu", ctx=4096,
                support_path=str(self.pair.support), cpu_blas=False,
            )
        )  # fmt: skip

    def ask(self, messages: Sequence[Message]) -> int:
        """Submit; the turn has the number of the request."""
        return self.send(
            lambda n: Submit(
                request_id=n, turn_id=n, messages=tuple(messages), max_tokens=MAX_TOKENS,
                ignore_end=True,
            )
        )  # fmt: skip

    def until(self, holds: Callable[[Event], bool], what: str) -> Event:
        """Take events up to one for which it holds, or to the engine's failure."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                kinds = [type(e).__name__ for e in self.said[-5:]]
                wanted(False, f"waited {PATIENCE_S:g} s for {what}; last: {kinds}")
            self._take(event)
            if holds(event) or isinstance(event, EngineFailed):
                return event

    def until_answer(self, number: int) -> Event:
        for event in self.said:
            if isinstance(event, Done | Refused) and event.request_id == number:
                return event
        return self.until(
            lambda e: isinstance(e, Done | Refused) and e.request_id == number,
            f"the answer to request {number}",
        )

    def until_end(self, turn_id: int) -> TurnFinished:
        def is_end(event: Event) -> bool:
            return isinstance(event, TurnFinished) and event.turn_id == turn_id

        for event in self.said:
            if isinstance(event, TurnFinished) and is_end(event):
                return event
        event = self.until(is_end, f"the end of turn {turn_id}")
        wanted(isinstance(event, TurnFinished), f"instead of the turn's end: {event}")
        assert isinstance(event, TurnFinished)
        return event

    def drain(self) -> None:
        """Take what has come."""
        while not self._events.empty():
            self._take(self._events.get())

    def close(self) -> None:
        process = self.process
        self.link.close()
        self.was_killed |= process is not None and (process.returncode or 0) < 0
        self.drain()
        self._check_life()

    def _take(self, event: Event) -> None:
        self.said.append(event)

    def _check_life(self) -> None:
        """Whatever happened: every command answered once, every turn ended."""
        answers = [e.request_id for e in self.said if isinstance(e, Done | Refused)]
        wanted(sorted(answers) == sorted(self._sent), f"sent {self._sent}, answers {answers}")
        read_turns(e for e in self.said if not isinstance(e, Done | Refused))


class EngineCycle:
    """One cycle. `reply`: the token ids of an undisturbed reply to a conversation's start."""

    def __init__(
        self, plan: Plan, pair: PairPaths, home: Path, reply: Callable[[str], tuple[int, ...]]
    ) -> None:
        self.plan = plan
        self.folder = home / "snapshots"
        self.engine = Engine(pair)
        self._reply = reply
        self._messages: list[Message] = []
        self._turn = 0
        self._saves = 0
        self._is_dead = False

    def run(self) -> None:
        try:
            self._until_moment()
            self._act()
            if self.plan.goes_on or self.plan.act in (Act.CANCEL, Act.INT):
                self._go_on()
        finally:
            self.engine.close()
        killed = self.engine.was_killed or self.plan.act in DEADLY
        nobody_holds(self.engine.pair.base, was_killed=killed)
        snapshots_are_whole(self.folder, was_killed=killed and not self.plan.goes_on)

    # Up to the moment.

    def _until_moment(self) -> None:
        engine, moment = self.engine, self.plan.moment
        engine.start()
        if moment is not Moment.START:
            engine.until(lambda e: isinstance(e, Hello), "Hello")
            engine.load()
        if moment is Moment.LOAD:
            engine.until(lambda e: isinstance(e, ModelLoading), "the first step of loading")
        if moment in (Moment.START, Moment.LOAD):
            time.sleep(self.plan.delay_s)
            return
        for i in range(self.plan.n_before):
            self._answered(f"{i} before")
        if moment in (Moment.PREFILL, Moment.STREAM):
            self._begin()
        elif moment is Moment.SAVE:
            self._answered(self.plan.question)
            self._save()
            time.sleep(self.plan.delay_s)
        elif moment is Moment.QUIT:
            engine.send(lambda n: Shutdown(request_id=n))
            time.sleep(self.plan.delay_s)

    def _begin(self) -> None:
        self._turn = self._ask(self.plan.question)
        self.engine.until(lambda e: isinstance(e, TurnStarted), "the turn")
        if self.plan.moment is Moment.PREFILL:
            time.sleep(self.plan.delay_s)
            return
        n_seen = 0
        while n_seen < self.plan.n_tokens:
            event = self.engine.until(
                lambda e: isinstance(e, TokensCommitted | TurnFinished), "tokens"
            )
            if not isinstance(event, TokensCommitted):
                return
            n_seen += len(event.spans)

    def _ask(self, question: str) -> int:
        self._messages.append(Message(role=Role.USER, text=question))
        return self.engine.ask(self._messages)

    def _answered(self, question: str) -> None:
        is_first = not self._messages
        end = self.engine.until_end(self._ask(question))
        wanted(end.reason is FinishReason.LENGTH, f"{end.reason}: {end.message}")
        if is_first:
            self._compare(question, end.ids, is_whole=True)
        self._messages.append(Message(role=Role.ASSISTANT, text="", ids=end.ids))

    def _compare(self, question: str, ids: tuple[int, ...], *, is_whole: bool) -> None:
        right = self._reply(question)
        wanted(
            ids == (right if is_whole else right[: len(ids)]),
            f"another reply to {question[:40]!r}: {ids} instead of {right}",
        )

    def _save(self) -> int:
        self._saves += 1
        name = f"s{self._saves}"
        return self.engine.send(
            lambda n: SaveSnapshot(request_id=n, folder=str(self.folder), name=name)
        )

    # The act, and what follows.

    def _act(self) -> None:
        act = self.plan.act
        if act is Act.CANCEL:
            self.engine.until_answer(self.engine.send(lambda n: Cancel(request_id=n)))
            self._after_cancel()
        elif act is Act.QUIT:
            self.engine.close()
            self._is_dead = True
        else:
            self._signal(SIGNALS[act])

    def _after_cancel(self) -> None:
        if not self._turn or self._is_over():
            return
        end = self.engine.until_end(self._turn)
        reasons = (FinishReason.CANCELLED, FinishReason.LENGTH)
        wanted(end.reason in reasons, f"{end.reason}: {end.message}")
        if len(self._messages) == 1:
            self._compare(self.plan.question, end.ids, is_whole=False)

    def _is_over(self) -> bool:
        return self.plan.moment is Moment.QUIT

    def _signal(self, number: signal.Signals) -> None:
        pid = self._pid()
        if pid is None:
            return
        os.kill(pid, number)
        if number is signal.SIGINT and self.plan.moment is not Moment.START:
            wanted(self._is_over() or self.engine.link.is_alive, "SIGINT ended the engine")
            if self._turn:
                self.engine.until_end(self._turn)
            return
        if self._is_over() or number is signal.SIGINT:
            return
        self._is_dead = True
        self.engine.until(lambda e: isinstance(e, EngineFailed), "EngineFailed")
        if self._turn:
            end = self.engine.until_end(self._turn)
            if end.reason is FinishReason.ERROR and len(self._messages) == 1:
                self._compare(self.plan.question, end.ids, is_whole=False)

    def _pid(self) -> int | None:
        process = self.engine.process
        return None if process is None or process.poll() is not None else process.pid

    def _go_on(self) -> None:
        """Ask again, after a restart if that is needed; the reply must be the right one."""
        engine = self.engine
        if self.plan.act is Act.QUIT:
            self.engine = Engine(engine.pair)
            self.engine.was_killed = engine.was_killed
            engine = self.engine
            engine.start()
        elif self._is_dead or self._is_over() or self.plan.moment is Moment.START:
            engine.restart()
        if not any(isinstance(e, ModelLoading) for e in engine.said):
            wanted(isinstance(engine.until_answer(engine.load()), Done), "no second load")
        if self._saves:
            self._restore()
        question = self.plan.question
        end = engine.until_end(engine.ask([Message(role=Role.USER, text=question)]))
        wanted(end.reason is FinishReason.LENGTH, f"then {end.reason}: {end.message}")
        self._compare(question, end.ids, is_whole=True)
        answer = engine.until_answer(self._save())
        wanted(isinstance(answer, Done), f"then no snapshot: {answer}")

    def _restore(self) -> None:
        """The snapshot of the moment is there whole, or is not there."""
        answer = self.engine.until_answer(
            self.engine.send(
                lambda n: RestoreSnapshot(
                    request_id=n, folder=str(self.folder), names=("s1",),
                    messages=tuple(self._messages),
                )
            )
        )  # fmt: skip
        saved = any(isinstance(e, SnapshotSaved) for e in self.engine.said)
        is_gone = isinstance(answer, Refused) and "is gone" in answer.message
        wanted(isinstance(answer, Done) or (is_gone and not saved), f"not restored: {answer}")


def replies(pair: PairPaths) -> Callable[[str], tuple[int, ...]]:
    """Undisturbed replies, each made once."""
    known: dict[str, tuple[int, ...]] = {}

    def reply(question: str) -> tuple[int, ...]:
        if question not in known:
            engine = Engine(pair)
            engine.start()
            engine.load()
            message = Message(role=Role.USER, text=question)
            known[question] = engine.until_end(engine.ask([message])).ids
            engine.close()
        return known[question]

    return reply
