"""Talking to an engine without a screen: ask, wait, and be interrupted by signals."""

from __future__ import annotations

import itertools
import queue
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ds4chat.errors import Ds4Error, EngineError, ModelFileError
from ds4chat.protocol.commands import Cancel, Command, Load, Submit
from ds4chat.protocol.engine import EngineLink
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    ModelReady,
    Refused,
    TurnFinished,
)
from ds4chat.protocol.types import ModelInfo
from ds4chat.tui.problems import joined

OnEvent = Callable[[Event], None]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """A signal ended the program; `status` is its exit status, 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Talk:
    """One engine, one conversation at a time, on the calling thread.

    The first interrupt while a reply runs stops the reply; any other signal, and an interrupt
    at any other time, raises StoppedError.
    """

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._news: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._signals: deque[int] = deque()  # for each a None among the news, to wake
        self._numbers = itertools.count(1)

    @contextmanager
    def running(self, finish: Callable[[], None] | None = None) -> Iterator[None]:
        """Start the engine, catch signals; end the engine, `finish`, and give them back.

        What comes at the end breaks nothing off: a terminal that closes and the shell behind it
        both send a signal.
        """

        def caught(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            self._news.put(None)

        old = {number: signal.signal(number, caught) for number in _SIGNALS}
        try:
            self._link.start(self._news.put)
            yield
        finally:
            try:
                self._link.close()
                if finish is not None:
                    finish()
            finally:
                for number, handler in old.items():
                    signal.signal(number, handler)

    def wait(self, read: Callable[[], str | None]) -> str | None:
        """Call `read`, which any signal ends with StoppedError.

        An interrupt that came since the end of the last reply had nothing left to stop: it is
        dropped, lest it stop the next one.
        """

        def caught(number: int, _frame: FrameType | None) -> None:
            raise StoppedError(number)

        old = {number: signal.signal(number, caught) for number in _SIGNALS}
        try:
            self._forget_interrupts()
            return read()
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _forget_interrupts(self) -> None:
        """Drop interrupts. Raises StoppedError for another signal."""
        while self._signals:
            number = self._signals.popleft()
            if number != signal.SIGINT:
                raise StoppedError(number)

    def number(self) -> int:
        """A fresh request or turn id."""
        return next(self._numbers)

    def load(self, load: Load, on_event: OnEvent) -> ModelInfo:
        """Load a model and wait for it.

        Raises:
            ModelFileError: it was refused.
            EngineError: the engine died.
            StoppedError: a signal came.
        """
        self._link.send(load)
        while True:
            event = self.next_event()
            match event:
                case int():
                    raise StoppedError(event)
                case ModelReady():
                    on_event(event)
                    return event.info
                case Refused():
                    raise ModelFileError(event.message, event.hint)
                case EngineFailed(fatal=True):
                    raise _died(event)
                case _:
                    on_event(event)

    def ask(self, submit: Submit, on_event: OnEvent) -> TurnFinished:
        """Ask and wait for the end of the reply.

        Raises:
            Ds4Error: the question was refused; EngineError: the engine died.
            StoppedError: a second interrupt, or another signal.
        """
        self._link.send(submit)
        is_stopping = False
        while True:
            event = self.next_event()
            match event:
                case int():
                    if is_stopping or event != signal.SIGINT:
                        raise StoppedError(event)
                    is_stopping = True
                    self._link.send(Cancel(request_id=self.number(), lane=submit.lane))
                case TurnFinished():
                    on_event(event)
                    return event
                case Refused() if event.request_id == submit.request_id:
                    raise Ds4Error(event.message, event.hint)
                case EngineFailed(fatal=True):
                    raise _died(event)
                case _:
                    on_event(event)

    def command(self, command: Command, on_event: OnEvent) -> Done | Refused:
        """Send a command and wait for its answer.

        Raises:
            EngineError: the engine died.
            StoppedError: a signal came.
        """
        self._link.send(command)
        while True:
            event = self.next_event()
            match event:
                case int():
                    raise StoppedError(event)
                case Done() | Refused() if event.request_id == command.request_id:
                    return event
                case EngineFailed(fatal=True):
                    raise _died(event)
                case _:
                    on_event(event)

    def next_event(self) -> Event | int:
        """Wait for the next event, or the number of a signal, which overtakes all events.

        An engine can be far ahead of a slow reader of standard output.
        """
        while True:
            if self._signals:
                return self._signals.popleft()
            news = self._news.get()
            if news is not None:
                return news


def _died(event: EngineFailed) -> EngineError:
    log = f"The log: {event.log_path}" if event.log_path else ""
    return EngineError(event.message, joined(event.hint, log))
