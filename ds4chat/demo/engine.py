"""The scripted engine: the protocol's `EngineLink` on a thread of its own, with no model."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from typing import NoReturn, assert_never

from ds4chat.demo import snapshots
from ds4chat.demo.inbox import Inbox, Stop, gone
from ds4chat.demo.script import Reply, Script, common, pieces_of, prompt_ids
from ds4chat.demo.tally import Tally
from ds4chat.demo.turn import Drafting, Running, Turn
from ds4chat.errors import Ds4Error, EngineError
from ds4chat.protocol.commands import (
    Cancel,
    CloseSession,
    Command,
    Load,
    Pause,
    RestoreSnapshot,
    Resume,
    SaveSnapshot,
    SetSpeculation,
    Shutdown,
    StopThinking,
    Submit,
    Tokenize,
)
from ds4chat.protocol.engine import Emit
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Hello,
    ModelLoading,
    ModelReady,
    PlainStep,
    PrefillProgress,
    Refused,
    RoundVerified,
    Tokenized,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import PROTOCOL_VERSION, Channel, SpecState

PREFILL_CHUNK = 256  # prompt tokens between two PrefillProgress
LOAD_STEPS = 8  # ModelLoading events of a stage

Steering = Cancel | Pause | Resume | SetSpeculation | StopThinking


class _Crash(Exception):  # noqa: N818 - not an error: a scripted death of the thread
    """The script says that the engine dies here."""


class ScriptedEngine:
    """Answers from a `Script`.

    Args:
        script: what to say.
        pace: how much of the scripted time really passes: 1 as scripted, 0 at once.
    """

    def __init__(self, script: Script, *, pace: float = 1.0) -> None:
        self._script = script
        self._pace = pace
        self._emit: Emit | None = None
        self._life: _Life | None = None
        self._n_lives = 0

    def start(self, emit: Emit) -> None:
        """Start the thread; `Hello` is the first event."""
        self._emit = emit
        self._begin(emit)

    def send(self, command: Command) -> None:
        """Queue a command, or refuse it when the engine is gone."""
        is_taken = self._life is not None and self._life.inbox.put(command)
        if not is_taken and self._emit is not None:
            self._emit(gone(command))

    def restart(self) -> None:
        """End what is left and start afresh; scripted crashes do not happen again.

        Raises:
            EngineError: it was never started.
        """
        if self._emit is None:
            raise EngineError("the engine was never started", "call start first")
        self.close()
        self._begin(self._emit)

    def close(self) -> None:
        """End the thread."""
        if self._life is not None:
            self._life.stop()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._life is not None and self._life.is_alive

    def _begin(self, emit: Emit) -> None:
        self._n_lives += 1
        self._life = _Life(self._script, self._pace, emit, is_first=self._n_lives == 1)
        self._life.start()


class _Life:
    """One life of the engine: a thread, its queue of commands and what it holds."""

    def __init__(self, script: Script, pace: float, emit: Emit, *, is_first: bool) -> None:
        self.inbox = Inbox()
        self._script = script
        self._pace = pace
        self._emit = emit
        self._is_first = is_first
        self._thread = threading.Thread(target=self._run, name="scripted-engine", daemon=True)
        self._is_loaded = False
        self._held: dict[int, list[int]] = {}
        self._drafting: dict[int, Drafting] = {}
        self._running: dict[int, Running] = {}  # by lane
        self._shutdown: Shutdown | None = None

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and self.inbox.is_open

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.inbox.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        self._emit(Hello(protocol_version=PROTOCOL_VERSION, build="scripted", pid=os.getpid()))
        try:
            while True:
                self._work()
        except Stop:
            self._refuse_rest()
        except _Crash:
            self._refuse_rest()
            self._emit(
                EngineFailed(
                    message="the scripted engine stopped, as its script says",
                    hint="restart it",
                )
            )

    def _refuse_rest(self) -> None:
        for command in self.inbox.rest():
            self._emit(gone(command))

    def _work(self) -> None:
        """Obey a command; when none waits, advance the lane with the least engine time."""
        ready = [run for run in self._running.values() if not run.is_waiting]
        if not ready or not self.inbox.is_empty:
            self._obey(self.inbox.take())
            return
        run = min(ready, key=lambda run: (run.is_prefilled, run.engine_s))
        try:
            next(run.steps)
        except StopIteration:
            del self._running[run.lane]
        if self._shutdown is not None and not self._running:
            self._end(self._shutdown)

    def _hold(self, n_taken: int) -> None:
        """Wait for a command, unless one came since `n_taken` were taken."""
        if self.inbox.n_taken == n_taken:
            self._obey(self.inbox.take())

    def _pause(self, seconds: float) -> None:
        """Let scripted time pass while commands are obeyed; at pace 0 only obey what waits."""
        left = seconds * self._pace
        while True:
            try:
                command = self.inbox.take(max(0.0, left))
            except queue.Empty:
                return
            self._obey(command)
            left = 0

    def _obey(self, command: Command) -> None:
        match command:
            case Load():
                self._load(command)
            case Submit():
                self._submit(command)
            case Cancel() | Pause() | Resume() | SetSpeculation() | StopThinking():
                self._steer(command)
            case Tokenize():
                self._tokenize(command)
            case CloseSession():
                self._held.pop(command.lane, None)
                self._done(command)
            case SaveSnapshot() | RestoreSnapshot():
                self._keep(command)
            case Shutdown():
                self._shut_down(command)
            case _:
                assert_never(command)

    def _shut_down(self, command: Shutdown) -> None:
        if not self._running:
            self._end(command)
        self._shutdown = command  # answered after the last turn's last event
        for run in self._running.values():
            run.turn.cancel()

    def _end(self, command: Shutdown) -> NoReturn:
        self.inbox.close()  # first: who hears of it sees an engine that is gone
        self._done(command)
        raise Stop

    def _load(self, command: Load) -> None:
        if self._running:
            self._refuse(command, "a reply is running", "stop it first")
            return
        n_taken = self.inbox.n_taken
        for stage, total in self._script.load_stages:
            for step in range(LOAD_STEPS + 1):
                self._emit(
                    ModelLoading(
                        stage=stage,
                        done_bytes=total * step // LOAD_STEPS,
                        total_bytes=total,
                        elapsed_s=0.05 * step,
                        done_tensors=self._script.load_tensors * step // LOAD_STEPS,
                        total_tensors=self._script.load_tensors,
                    )
                )
                self._pause(0.05)
        if self._script.is_load_held and self._is_first:
            self._hold(n_taken)
        failure = self._script.load_failure
        if failure is not None:
            self._refuse(command, failure.message, failure.hint)
            self._emit(EngineFailed(message=failure.message, hint=failure.hint, fatal=False))
            return
        self._is_loaded = True
        self._emit(ModelReady(info=self._script.info))
        self._done(command)

    def _steer(self, command: Steering) -> None:
        run = self._running.get(command.lane)
        if run is None:
            self._refuse(command, f"no reply is running in lane {command.lane}", "")
            return
        match command:
            case Cancel():
                run.turn.cancel()
            case Pause() | Resume():
                run.is_paused = isinstance(command, Pause)
            case SetSpeculation():
                run.turn.set_spec(command.spec, keep_on=command.keep_on)
            case StopThinking():
                run.turn.stop_thinking()
        self._done(command)

    def _tokenize(self, command: Tokenize) -> None:
        pieces = pieces_of(self._script, command.text, Channel.ANSWER)
        self._emit(
            Tokenized(
                request_id=command.request_id,
                ids=tuple(piece.id for piece in pieces),
                texts=tuple(piece.text for piece in pieces),
            )
        )
        self._done(command)

    def _keep(self, command: SaveSnapshot | RestoreSnapshot) -> None:
        try:
            self._emit(snapshots.keep(command, self._script, self._held, self._running))
            self._done(command)
        except Ds4Error as error:
            self._refuse(command, error.message, error.hint)

    def _submit(self, command: Submit) -> None:
        if not self._is_loaded:
            self._refuse(command, "no model is loaded", "wait until it is ready")
        elif command.lane in self._running:
            self._refuse(command, "a reply is already running", "stop it first")
        elif not command.messages:
            self._refuse(command, "the conversation is empty", "write a message")
        else:
            self._answer(command, self._script.choose(command.messages))

    def _answer(self, command: Submit, reply: Reply) -> None:
        prompt = prompt_ids(self._script, command.messages, command.think)
        ctx = self._script.info.ctx
        if reply.refusal is not None:
            self._refuse(command, reply.refusal.message, reply.refusal.hint)
            return
        if len(prompt) >= ctx:
            message = f"the conversation has {len(prompt):,} tokens, the context {ctx:,}"
            self._refuse(command, message, "/new starts an empty one")
            return
        self._done(command)
        held = self._held.get(command.lane, [])
        n_cached = min(common(held, prompt), len(prompt) - 1)
        tally = Tally(
            block_size=self._script.info.block_size,
            n_prompt=len(prompt),
            n_cached=n_cached,
            plain_step_s=self._script.plain_step_s,
        )
        turn = Turn(command, self._script, reply, tally, self._drafting_of(command.lane))
        self._running[command.lane] = Running(
            lane=command.lane, turn=turn, steps=self._steps(command, turn, reply, prompt)
        )

    def _drafting_of(self, lane: int) -> Drafting:
        has_drafter = self._script.info.block_size > 0
        state = SpecState.ON if has_drafter else SpecState.UNAVAILABLE
        return self._drafting.setdefault(lane, Drafting(state=state))

    def _steps(
        self, command: Submit, turn: Turn, reply: Reply, prompt: list[int]
    ) -> Iterator[None]:
        """Carry out a turn; each step of the iterator is a prefill, a round or a plain step."""
        run, n_taken = self._running[command.lane], self.inbox.n_taken
        self._emit(
            TurnStarted(
                turn_id=command.turn_id,
                lane=command.lane,
                n_prompt=turn.tally.n_prompt,
                n_cached=turn.tally.n_cached,
            )
        )
        self._prefill(command.turn_id, turn)
        if 0 in reply.holds:
            self._hold(n_taken)
        run.is_prefilled = True
        yield
        for events in turn.steps():
            n_taken = self.inbox.n_taken
            self._report(events)
            if not isinstance(events[-1], TurnFinished):
                run.engine_s += (seconds := sum(_engine_seconds(events)))
                self._crash_after(turn, reply)
                self._pause(seconds)
                if turn.n_steps in reply.holds:
                    self._hold(n_taken)
                yield
        self._held[command.lane] = prompt + turn.ids

    def _prefill(self, turn_id: int, turn: Turn) -> None:
        tally = turn.tally
        total = tally.n_prompt - tally.n_cached
        for done in range(0, total, PREFILL_CHUNK):
            if turn.is_ending:
                return
            n_done = min(total, done + PREFILL_CHUNK)
            seconds = (n_done - done) / self._script.prefill_tps
            self._pause(seconds)
            tally.prefill_s += seconds
            self._emit(
                PrefillProgress(
                    turn_id=turn_id, n_done=n_done, n_total=total, elapsed_s=tally.prefill_s
                )
            )
        tally.first_token_s = tally.prefill_s + self._script.plain_step_s

    def _report(self, events: list[Event]) -> None:
        for event in events:
            self._emit(event)

    def _crash_after(self, turn: Turn, reply: Reply) -> None:
        if not self._is_first or turn.n_steps != reply.crash_after:
            return
        self.inbox.close()  # before the turns end: who hears of them sees a dead engine
        for run in filter(lambda run: run.is_prefilled, self._running.values()):
            run.turn.fail("the engine stopped during this reply", "what it wrote is kept")
            self._report([event for events in run.turn.steps() for event in events])
        raise _Crash

    def _done(self, command: Command) -> None:
        self._emit(Done(request_id=command.request_id))

    def _refuse(self, command: Command, message: str, hint: str) -> None:
        self._emit(Refused(request_id=command.request_id, message=message, hint=hint))


def _engine_seconds(events: list[Event]) -> Iterator[float]:
    for event in events:
        if isinstance(event, RoundVerified):
            yield event.draft_s + event.verify_s
        elif isinstance(event, PlainStep):
            yield event.step_s
