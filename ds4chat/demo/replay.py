"""A saved conversation as an engine: its events come again, each at the time that it came."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Cancel, Command, Load, Shutdown, Submit
from ds4chat.protocol.engine import Emit
from ds4chat.protocol.events import (
    Done,
    Hello,
    ModelReady,
    Notice,
    Refused,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import (
    PROTOCOL_VERSION,
    Channel,
    FinishReason,
    Source,
    Span,
    Token,
    Usage,
)
from ds4chat.store.records import TurnEvent
from ds4chat.store.tree import Tree, Turn

OVER = "this is a replay: there is no engine to answer"
HINT = "ds4chat -r NAME goes on with the session."

Pause = Callable[[float], bool]


class ReplayEngine:
    """Answers the n-th message with the n-th recorded reply of a branch.

    Args:
        tree: the conversation.
        pace: how much of the recorded time passes; 0: none.
    """

    def __init__(self, tree: Tree, *, pace: float = 1.0) -> None:
        self._turns = tree.path()
        self._pace = pace
        model = tree.options.model if tree.options is not None else None
        self._info = model or default_info()
        self._inbox: queue.Queue[Command] = queue.Queue()
        self._emit: Emit | None = None
        self._thread: threading.Thread | None = None
        self._n_asked = 0

    @property
    def questions(self) -> tuple[str, ...]:
        """What was asked, in order."""
        return tuple(turn.question for turn in self._turns)

    def start(self, emit: Emit) -> None:
        """Start the thread; `Hello` is the first event."""
        self._emit = emit
        self._thread = threading.Thread(target=self._run, args=(emit,), daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command."""
        self._inbox.put(command)

    def restart(self) -> None:
        """Begin from the first message again."""
        self.close()
        self._n_asked = 0
        if self._emit is not None:
            self.start(self._emit)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None and self._thread.is_alive():
            self._inbox.put(Shutdown(request_id=-1))
            self._thread.join(2.0)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self, emit: Emit) -> None:
        emit(Hello(protocol_version=PROTOCOL_VERSION, build="replay", pid=os.getpid()))
        while not isinstance(command := self._inbox.get(), Shutdown):
            if isinstance(command, Load):
                emit(ModelReady(info=self._info))
                emit(Done(request_id=command.request_id))
            elif isinstance(command, Submit) and self._n_asked < len(self._turns):
                turn = self._turns[self._n_asked]
                self._n_asked += 1
                emit(Done(request_id=command.request_id))
                if not self._play(turn, command.turn_id, emit):
                    return
            else:
                emit(Refused(request_id=command.request_id, message=OVER, hint=HINT))

    def _play(self, turn: Turn, turn_id: int, emit: Emit) -> bool:
        """Report a turn; False when the replay is to end."""
        first_s = turn.usage.first_token_s if turn.usage is not None else 0.0
        started, shown = time.monotonic(), 0
        for event in whole(turn):
            due = started
            if isinstance(event, TokensCommitted):
                due += (first_s + event.at_s) * self._pace
            command = self._wait(due)
            if isinstance(command, Shutdown):
                return False
            if isinstance(command, Cancel) and not isinstance(event, TurnFinished):
                emit(Done(request_id=command.request_id))
                ids = tuple(turn.ids[:shown])
                usage = Usage(n_tokens=shown)
                emit(
                    TurnFinished(
                        turn_id=turn_id, reason=FinishReason.CANCELLED, usage=usage, ids=ids
                    )
                )
                return True
            shown += len(event.spans) if isinstance(event, TokensCommitted) else 0
            emit(replace(event, turn_id=turn_id))
        return True

    def _wait(self, due: float) -> Command | None:
        """Let time pass until `due`; a command that ends or stops the reply cuts it short."""
        while True:
            left = due - time.monotonic()
            try:
                command = (
                    self._inbox.get(timeout=left) if left > 0 else self._inbox.get_nowait()
                )
            except queue.Empty:
                return None
            if isinstance(command, Cancel | Shutdown):
                return command
            assert self._emit is not None
            self._emit(Refused(request_id=command.request_id, message=OVER, hint=HINT))


def whole(turn: Turn) -> Iterator[TurnEvent]:
    """A turn's events with a beginning and an end, also when the program died in it."""
    events = [
        event for event in turn.events if not isinstance(event, TurnStarted | TurnFinished)
    ]
    started = next((e for e in turn.events if isinstance(e, TurnStarted)), None)
    yield started or TurnStarted(turn_id=turn.id, lane=0, n_prompt=0, n_cached=0)
    has_spans = any(isinstance(event, TokensCommitted) for event in events)
    if not has_spans:
        yield from _plain(turn)
    yield from (event for event in events if not isinstance(event, Notice))
    yield turn.finished or TurnFinished(
        turn_id=turn.id,
        reason=FinishReason.ERROR,
        usage=Usage(n_tokens=len(turn.ids)),
        ids=tuple(turn.ids),
        message="the recording ends here",
    )


def _plain(turn: Turn) -> Iterator[TokensCommitted]:
    """A reply that came without provenance."""
    texts = ((Channel.THINKING, turn.reasoning_text), (Channel.ANSWER, turn.answer_text))
    token = Token(id=-1, source=Source.FORCED, round=0, position=0, confidence=None, margin=0.0)
    for channel, text in texts:
        if text:
            spans = (Span(text=text, token=token),)
            yield TokensCommitted(turn_id=turn.id, channel=channel, spans=spans)
