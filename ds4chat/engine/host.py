"""The engine process: `python -m ds4chat.engine.host`.

The main thread owns the engine and every MLX array; a second thread only reads commands. The
process ends when its standard input ends, whatever it is doing: an engine without a screen
would hold the memory of the model for nothing.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from ds4chat import __version__, settings
from ds4chat.engine import host_guard, host_pipe, owner
from ds4chat.engine.api import SessionApi
from ds4chat.engine.ds4_log import stats_line
from ds4chat.engine.host_inbox import Accepted, Inbox, Nudge
from ds4chat.engine.host_open import HostedEngine, LoadProgress, OpenEngine, open_engine
from ds4chat.engine.host_snapshots import HostSnapshots
from ds4chat.engine.turn_plan import TurnControls, TurnPlan, TurnTools
from ds4chat.engine.turns import MIN_REPORT_S, Turn
from ds4chat.errors import Ds4Error, EngineError, ModelFileError
from ds4chat.protocol.commands import (
    CloseSession,
    Command,
    Load,
    RestoreSnapshot,
    SaveSnapshot,
    Shutdown,
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
    Notice,
    Refused,
    Tokenized,
    TurnFinished,
)
from ds4chat.protocol.types import PROTOCOL_VERSION
from ds4chat.protocol.usage import SessionStats
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.stops import StopGate

EXIT_OK, EXIT_FAILED = 0, 1

WriteLine = Callable[[str], None]

_log = logging.getLogger("ds4chat.host")


class LoadingReport:
    """Progress of a load as `ModelLoading`: each new stage, and ten a second at most."""

    def __init__(self, emit: Emit, clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock
        self._started_s = clock()
        self._next_s = self._started_s
        self._stage = ""

    def __call__(
        self,
        stage: str,
        done_bytes: int,
        total_bytes: int,
        done_tensors: int = 0,
        total_tensors: int = 0,
    ) -> None:
        """Report unless it is too early; tensors that are read twice count once."""
        now_s = self._clock()
        if stage == self._stage and now_s < self._next_s:
            return
        self._stage, self._next_s = stage, now_s + MIN_REPORT_S
        self._emit(
            ModelLoading(
                stage=stage,
                done_bytes=min(done_bytes, total_bytes),
                total_bytes=total_bytes,
                elapsed_s=now_s - self._started_s,
                done_tensors=done_tensors,
                total_tensors=total_tensors,
            )
        )


class Host:
    """Carries out commands, one at a time, and advances running turns in between.

    When several lanes have a turn, prompts are read first, each to its end; then the lane that
    has decoded for the least engine time goes next. A paused lane waits until it is resumed or
    cancelled.
    """

    def __init__(
        self,
        inbox: Inbox,
        emit: Emit,
        opener: OpenEngine,
        clock: Callable[[], float] = time.perf_counter,
        spec_log: WriteLine | None = None,
        stats_log: WriteLine | None = None,
    ) -> None:
        self._inbox = inbox
        self._emit = emit
        self._opener = opener
        self._clock = clock
        self._spec_log = spec_log
        self._stats_log = stats_log
        self._stats: dict[int, SessionStats] = {}
        self._engine: HostedEngine | None = None
        self._sessions: dict[int, SessionApi] = {}
        self._turns: dict[int, Turn] = {}
        self._snapshots = HostSnapshots(emit)

    def run(self) -> int:
        """Serve until `Shutdown` or the end of input; returns the exit status."""
        try:
            while True:
                if self._inbox.is_empty and self._ready():
                    self._advance()
                    continue
                item = self._inbox.get()
                if item is None or isinstance(item, Shutdown):
                    self._wind_up(item)
                    return EXIT_OK
                self._carry_out(item)
        finally:
            for turn in self._turns.values():
                turn.fail("the engine failed in another lane")
            self._snapshots.close()

    def _wind_up(self, shutdown: Shutdown | None) -> None:
        while self._turns:
            self._advance()
        for lane in list(self._stats):
            self._tell_stats(lane)
        self._snapshots.wait()
        if shutdown is not None:
            self._emit(Done(request_id=shutdown.request_id))

    def _carry_out(self, item: Command | Accepted | Nudge) -> None:
        if isinstance(item, Nudge):
            return
        command = item.submit if isinstance(item, Accepted) else item
        try:
            if isinstance(item, Accepted):
                self._submit(item.submit, item.controls)
            else:
                self._obey(item)
        except Ds4Error as error:
            self._refuse(command, error)
        except Exception as error:  # noqa: BLE001 - the engine loop: see the style page
            _log.exception("%s failed", type(command).__name__)
            self._refuse(command, EngineError(_words(error), "The engine's log has more."))

    def _refuse(self, command: Command, error: Ds4Error) -> None:
        if isinstance(command, Submit):
            self._inbox.release(command.lane)
        if isinstance(command, Load):
            self._emit(EngineFailed(message=error.message, hint=error.hint, fatal=False))
        self._emit(
            Refused(request_id=command.request_id, message=error.message, hint=error.hint)
        )

    def _obey(self, command: Command) -> None:
        match command:
            case Load():
                self._load(command)
            case Tokenize():
                self._tokenize(command)
            case CloseSession():
                self._close_lane(command.lane)
            case SaveSnapshot():
                self._save(command)
                return  # answered when it is on the disk
            case RestoreSnapshot():
                self._restore(command)
            case _:
                raise EngineError(f"{type(command).__name__} is not carried out here")
        self._emit(Done(request_id=command.request_id))

    def _load(self, command: Load) -> None:
        if self._turns:
            raise EngineError("a reply is running", "Stop it before you load another model.")
        for lane in list(self._sessions):
            self._close_lane(lane)
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        progress = LoadingReport(self._emit, self._clock)
        self._engine = self._open(command, progress)
        info = self._engine.info
        notes = (command.support_note,) if command.support_note else ()
        self._emit(ModelReady(info=replace(info, notes=(*notes, *info.notes))))

    def _open(self, command: Load, progress: LoadProgress) -> HostedEngine:
        """Open the pair; a support file that cannot be used costs speculation, not the chat.

        Nor does one for which the machine has no memory. Unless the command says that it is
        needed.
        """
        try:
            return self._opener(command, progress)
        except (ModelFileError, EngineError) as error:
            if not command.support_path or command.needs_support:
                raise
            engine = self._opener(replace(command, support_path=""), progress)
            self._emit(
                Notice(
                    turn_id=None,
                    level="warning",
                    message=f"no speculation: {error.message}",
                    hint=error.hint,
                )
            )
            return engine

    def _loaded(self) -> HostedEngine:
        if self._engine is None:
            raise EngineError("no model is loaded", "Load one first.")
        return self._engine

    def _tokenize(self, command: Tokenize) -> None:
        engine = self._loaded()
        ids = tuple(engine.tokenize(command.text))
        texts = tuple(engine.tokenizer.piece(token_id) for token_id in ids)
        self._emit(Tokenized(request_id=command.request_id, ids=ids, texts=texts))

    def _close_lane(self, lane: int) -> None:
        self._refuse_running(lane)
        session = self._sessions.pop(lane, None)
        self._tell_stats(lane)
        if session is not None:
            session.close()

    def _save(self, command: SaveSnapshot) -> None:
        self._refuse_running(command.lane)
        session = self._sessions.get(command.lane)
        self._snapshots.save(command, self._loaded(), session)

    def _restore(self, command: RestoreSnapshot) -> None:
        self._refuse_running(command.lane)
        session = self._snapshots.restore(command, self._loaded())
        self._close_lane(command.lane)
        self._sessions[command.lane] = session

    def _refuse_running(self, lane: int) -> None:
        if lane in self._turns:
            raise EngineError(f"a reply is running in lane {lane}", "Stop it first.")

    def _submit(self, submit: Submit, controls: TurnControls) -> None:
        engine = self._loaded()
        gate = StopGate(submit.stop)
        specials = engine.tokenizer.specials
        plan = TurnPlan(
            turn_id=submit.turn_id,
            lane=submit.lane,
            ids=tuple(
                engine.render(
                    submit.messages, submit.think, keep_reasoning=submit.keep_reasoning
                )
            ),
            ctx=engine.info.ctx,
            end_ids=frozenset() if submit.ignore_end else engine.end_ids,
            close_think_id=specials.think_close,
            block_size=engine.info.block_size,
            sampling=submit.sampling,
            spec=submit.spec,
            max_tokens=submit.max_tokens,
        )
        if submit.lane not in self._sessions:
            self._sessions[submit.lane] = engine.session(drafts=submit.drafts)
        tools = TurnTools(
            splitter=ChannelSplitter(engine.tokenizer, submit.think),
            gate=gate,
            text_of=engine.tokenizer.piece,
            emit=partial(self._emit_of_turn, submit.lane),
            clock=self._clock,
            plain_step_s=lambda: engine.stats().get("pass_s", {}).get(1),
            spec_log=self._spec_log,
        )
        turn = Turn(plan, self._sessions[submit.lane], controls, tools)
        self._emit(Done(request_id=submit.request_id))
        self._turns[submit.lane] = turn

    def _emit_of_turn(self, lane: int, event: Event) -> None:
        if isinstance(event, TurnFinished):
            self._stats.setdefault(lane, SessionStats()).add(event.usage)
            self._inbox.release(lane)  # first: the answer to this event may be a `Submit`
        self._emit(event)

    def _tell_stats(self, lane: int) -> None:
        """Write ds4's statistics line of a session that ends, if it is wanted."""
        stats = self._stats.pop(lane, None)
        if stats is not None and self._stats_log is not None:
            self._stats_log(stats_line(stats.usage))

    def _ready(self) -> list[Turn]:
        return [turn for turn in self._turns.values() if not turn.is_waiting]

    def _advance(self) -> None:
        turns = self._ready() or self._turns.values()  # all wait: the end has come
        turn = min(turns, key=lambda turn: (turn.is_prefilled, turn.engine_s))
        try:
            turn.advance()
        except Exception as error:  # noqa: BLE001 - the engine loop: see the style page
            _log.exception("a round failed")
            turn.fail(f"the engine failed: {_words(error)}", "Its log has more. Try again.")
            self._abandon(turn.lane)
        if turn.is_finished:
            del self._turns[turn.lane]

    def _abandon(self, lane: int) -> None:
        """Forget a session whose state can no longer be trusted.

        If even that fails, the exception ends the process, as `EngineFailed`.
        """
        self._tell_stats(lane)
        self._sessions.pop(lane).close()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def serve(opener: OpenEngine, log_path: Path | None, grace_s: float) -> int:
    """Run the host on this process's standard streams; returns the exit status."""
    commands, events = host_pipe.claim()
    host_guard.isolate()
    host_guard.open_log(log_path)
    emit = host_pipe.LineWriter(events).emit
    emit(Hello(protocol_version=PROTOCOL_VERSION, build=__version__, pid=os.getpid()))
    inbox = Inbox(emit, on_end=lambda: host_guard.end_within(grace_s))
    threading.Thread(
        target=inbox.read, args=(host_pipe.lines(commands),), name="commands", daemon=True
    ).start()
    try:
        spec_log = host_guard.say if settings.wants_spec_log() else None
        stats_log = host_guard.say if settings.wants_stats_line() else None
        return Host(inbox, emit, opener, spec_log=spec_log, stats_log=stats_log).run()
    except Exception as error:  # noqa: BLE001 - the engine loop: see the style page
        _log.exception("the engine cannot go on")
        emit(
            EngineFailed(
                message=f"the engine cannot go on: {_words(error)}",
                hint="Restart it.",
                log_path=str(log_path or ""),
            )
        )
        return EXIT_FAILED


def end(status: int) -> NoReturn:
    """Leave at once: freeing the model's memory one array at a time would take seconds."""
    owner.release_all()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)


def main(argv: Sequence[str] | None = None, opener: OpenEngine = open_engine) -> int:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="ds4chat.engine.host", allow_abbrev=False)
    parser.add_argument("--log", type=Path, help="file for the engine's log")
    parser.add_argument(
        "--grace", type=float, default=host_guard.GRACE_S,
        help="seconds between the end of input and a forced end",
    )  # fmt: skip
    args = parser.parse_args(argv)
    return serve(opener, args.log, args.grace)


if __name__ == "__main__":
    end(main())
