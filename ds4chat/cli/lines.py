"""Answers without a screen: one shot, and the plain line mode."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

from ds4chat.cli import asking
from ds4chat.cli.printers import Printer, Transcript
from ds4chat.cli.session_lines import SessionLines
from ds4chat.cli.start import Start, refusal
from ds4chat.cli.talk import OnEvent, StoppedError, Talk
from ds4chat.errors import Ds4Error, EngineError, ModelFileError
from ds4chat.protocol.commands import Submit
from ds4chat.protocol.engine import EngineLink
from ds4chat.protocol.events import Event, TokensCommitted, TurnFinished
from ds4chat.protocol.types import FinishReason, Message, ModelInfo, Role, ThinkMode

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 128 + signal.SIGINT
GREETING = (
    "Plain line mode: one line is one message; Ctrl+C stops a reply; "
    "at the prompt it leaves, as Ctrl+D does."
)

QUIT = "/quit"
_COMMAND = re.compile(r"/[A-Za-z][A-Za-z-]*(\s.*)?")  # what the full screen takes as one

_STATUS = {
    FinishReason.CANCELLED: EXIT_INTERRUPTED,
    FinishReason.ERROR: EXIT_FAILED,
    FinishReason.NONFINITE: EXIT_FAILED,
}


class Dialog:
    """A conversation with an engine, printed as it comes."""

    def __init__(
        self, talk: Talk, start: Start, printer: Printer, kept: SessionLines | None = None
    ) -> None:
        self._talk = talk
        self._kept = kept
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
        if self._kept is not None:
            self._messages = self._kept.begin(
                self._talk, self._start, self._info, self._printer.take
            )

    def ask(self, text: str) -> TurnFinished:
        """Ask; the question and the reply become part of the conversation."""
        assert self._info is not None
        think = self._start.think or self._info.think_default
        question = Message(role=Role.USER, text=text)
        transcript, kept = Transcript(), self._kept
        turn_id = kept.asked(text, self._start, self._info) if kept is not None else None

        def take(event: Event) -> None:
            if isinstance(event, TokensCommitted):
                transcript.take(event)
            self._printer.take(event)
            if kept is not None:
                kept.report(event)

        end = self._reply(self._submit((*self._messages, question), think, turn_id), take)
        if not _is_refused(end):  # else the next question may be short enough
            reply = transcript.message(end, think)
            self._messages = (*self._messages, question, reply)
        return end

    def _reply(self, submit: Submit, take: OnEvent) -> TurnFinished:
        """Wait for the end of a reply; whatever it is, the session hears of it."""
        kept = self._kept
        if kept is None:
            return self._talk.ask(submit, take)
        try:
            end = self._talk.ask(submit, take)
        except (EngineError, StoppedError) as error:
            kept.broken_off(str(error))
            raise
        except Ds4Error:
            kept.taken_back()
            raise
        if _is_refused(end):
            kept.taken_back()
        else:
            kept.save(self._talk, self._start, end, self._printer.take)
        return end

    def _submit(
        self, messages: tuple[Message, ...], think: ThinkMode, turn_id: int | None
    ) -> Submit:
        start = self._start
        number = self._talk.number()
        return Submit(
            request_id=number,
            turn_id=number if turn_id is None else turn_id,
            messages=messages,
            think=think,
            sampling=start.sampling,
            spec=start.spec,
            max_tokens=start.max_tokens,
            ignore_end=start.ignore_end,
            keep_reasoning=start.keep_reasoning,
        )


def _is_refused(end: TurnFinished) -> bool:
    """Whether the question did not fit into the context."""
    return end.reason is FinishReason.CONTEXT_FULL and not end.ids


def one_shot(
    link: EngineLink,
    start: Start,
    printer: Printer,
    prompt: str,
    kept: SessionLines | None = None,
) -> int:
    """Answer one prompt; returns the exit status."""
    talk = Talk(link)
    dialog = Dialog(talk, start, printer, kept)
    try:
        with talk.running(kept.close if kept is not None else None):
            dialog.load()
            end = dialog.ask(prompt)
    except StoppedError as stopped:
        return stopped.status
    except Ds4Error as error:
        printer.fail(error.message, error.hint)
        return EXIT_FAILED
    if _is_refused(end):
        return EXIT_FAILED
    return _STATUS.get(end.reason, EXIT_OK)


def line_mode(
    link: EngineLink,
    start: Start,
    printer: Printer,
    read_line: Callable[[], str | None],
    kept: SessionLines | None = None,
) -> int:
    """Answer line after line until the input ends or says `/quit`; returns the exit status."""
    talk = Talk(link)
    dialog = Dialog(talk, start, printer, kept)
    try:
        with talk.running(kept.close if kept is not None else None):
            dialog.load()
            while (line := talk.wait(read_line)) is not None:
                if line.strip() == QUIT:
                    break
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
    if _COMMAND.fullmatch(line):
        printer.fail(
            f"{line.split(maxsplit=1)[0]} is a command of the full screen; it was not sent",
            f"A space before it makes it a message; {QUIT} or Ctrl+D leaves.",
        )
        return
    try:
        dialog.ask(line)
    except EngineError:
        raise
    except Ds4Error as error:  # refused: the next question may not be
        printer.fail(error.message, error.hint)


def ask_for_line() -> str | None:
    """Read a line behind a prompt; None: the end of the input."""
    return asking.read_line("> ")
