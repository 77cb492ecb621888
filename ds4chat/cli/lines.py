"""Answers without a screen: one shot, and the plain line mode."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from ds4chat.cli.printers import Printer, Transcript
from ds4chat.cli.start import Start, refusal
from ds4chat.cli.talk import StoppedError, Talk
from ds4chat.errors import Ds4Error, EngineError, ModelFileError
from ds4chat.protocol.commands import Submit
from ds4chat.protocol.engine import EngineLink
from ds4chat.protocol.events import Event, TokensCommitted, TurnFinished
from ds4chat.protocol.types import FinishReason, Message, ModelInfo, Role, ThinkMode

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 128 + signal.SIGINT
GREETING = "Plain line mode: one line is one message; Ctrl+C stops a reply, Ctrl+D leaves."

_STATUS = {
    FinishReason.CANCELLED: EXIT_INTERRUPTED,
    FinishReason.ERROR: EXIT_FAILED,
    FinishReason.NONFINITE: EXIT_FAILED,
}


class Dialog:
    """A conversation with an engine, printed as it comes."""

    def __init__(self, talk: Talk, start: Start, printer: Printer) -> None:
        self._talk = talk
        self._start = start
        self._printer = printer
        self._info: ModelInfo | None = None
        self._messages: tuple[Message, ...] = ()
        if start.system:
            self._messages = (Message(role=Role.SYSTEM, text=start.system),)

    def load(self) -> None:
        """Open the model. Raises Ds4Error or StoppedError."""
        load = self._start.load
        try:
            self._info = self._talk.load(load, self._printer.take)
        except ModelFileError as error:
            raise refusal(error, load) from error

    def ask(self, text: str) -> TurnFinished:
        """Ask; the question and the reply become part of the conversation."""
        assert self._info is not None
        think = self._start.think or self._info.think_default
        question = Message(role=Role.USER, text=text)
        transcript = Transcript()

        def take(event: Event) -> None:
            if isinstance(event, TokensCommitted):
                transcript.take(event)
            self._printer.take(event)

        end = self._talk.ask(self._submit((*self._messages, question), think), take)
        reply = transcript.message(end, think)
        self._messages = (*self._messages, question, reply)
        return end

    def _submit(self, messages: tuple[Message, ...], think: ThinkMode) -> Submit:
        start = self._start
        number = self._talk.number()
        return Submit(
            request_id=number,
            turn_id=number,
            messages=messages,
            think=think,
            sampling=start.sampling,
            spec=start.spec,
            max_tokens=start.max_tokens,
            ignore_end=start.ignore_end,
            keep_reasoning=start.keep_reasoning,
        )


def one_shot(link: EngineLink, start: Start, printer: Printer, prompt: str) -> int:
    """Answer one prompt; returns the exit status."""
    talk = Talk(link)
    dialog = Dialog(talk, start, printer)
    try:
        with talk.running():
            dialog.load()
            end = dialog.ask(prompt)
    except StoppedError as stopped:
        return stopped.status
    except Ds4Error as error:
        printer.fail(error.message, error.hint)
        return EXIT_FAILED
    if end.reason is FinishReason.CONTEXT_FULL and not end.ids:
        return EXIT_FAILED
    return _STATUS.get(end.reason, EXIT_OK)


def line_mode(
    link: EngineLink, start: Start, printer: Printer, read_line: Callable[[], str | None]
) -> int:
    """Answer line after line until the input ends; returns the exit status."""
    talk = Talk(link)
    dialog = Dialog(talk, start, printer)
    try:
        with talk.running():
            dialog.load()
            while (line := talk.wait(read_line)) is not None:
                if line.strip():
                    _ask(dialog, printer, line)
                if not link.is_alive:
                    return EXIT_FAILED
    except StoppedError as stopped:
        return stopped.status
    except Ds4Error as error:
        printer.fail(error.message, error.hint)
        return EXIT_FAILED
    return EXIT_OK


def _ask(dialog: Dialog, printer: Printer, line: str) -> None:
    try:
        dialog.ask(line)
    except EngineError:
        raise
    except Ds4Error as error:  # refused: the next question may not be
        printer.fail(error.message, error.hint)


def ask_for_line() -> str | None:
    """Read a line from standard input behind a prompt on standard error; None: its end."""
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None
