"""What a reply looks like without a screen: text, or JSON Lines."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Protocol, TextIO

from ds4chat.protocol.events import (
    Event,
    ModelLoading,
    ModelReady,
    Notice,
    PlainStep,
    PolicyChanged,
    RoundVerified,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import Channel, FinishReason, Message, Role, ThinkMode
from ds4chat.tui import loading
from ds4chat.tui.ledger import why
from ds4chat.tui.problems import joined
from ds4chat.tui.receipt import receipt

# Everything that a terminal could take for a command, but newline and tab: C0, DEL, C1.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


QUIET_S = 0.5  # a load that is over by then needs no words
MAX_LOADING = 79  # columns: a line that wraps cannot be written over

# Ends that need no words beyond the receipt.
_AS_ASKED = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED)


class Printer(Protocol):
    """Shows events as they come."""

    def take(self, event: Event) -> None:
        """Show one event."""

    def fail(self, message: str, hint: str) -> None:
        """Say that there will be no answer."""


def harmless(text: str) -> str:
    """Show control characters as U+FFFD instead of letting them reach a terminal."""
    return _CONTROLS.sub("\ufffd", text)


class Transcript:
    """Collects a reply, for the next question's conversation."""

    def __init__(self) -> None:
        self._texts = dict.fromkeys(Channel, "")

    def take(self, event: TokensCommitted) -> None:
        """Add what came."""
        self._texts[event.channel] += "".join(span.text for span in event.spans)

    def message(self, end: TurnFinished, think: ThinkMode) -> Message:
        """The whole reply."""
        return Message(
            role=Role.ASSISTANT,
            text=self._texts[Channel.ANSWER],
            reasoning=self._texts[Channel.THINKING],
            ids=end.ids,
            think=think,
        )


class TextPrinter:
    """The answer on `out`; reasoning, notices and statistics on `err`.

    Args:
        out: where the answer goes.
        err: where everything else goes.
        shows_thinking: whether reasoning is shown at all.
        is_verbose: whether statistics are.
        shows_loading: how far a load has come, on one line that is written over.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        shows_thinking: bool,
        is_verbose: bool,
        shows_loading: bool = False,
    ) -> None:
        self._out = out
        self._err = err
        self._shows_thinking = shows_thinking
        self._is_verbose = is_verbose
        self._shows_loading = shows_loading
        self._n_loading = 0  # characters of the line that is written over
        self._ends = {id(out): True, id(err): True}

    def take(self, event: Event) -> None:
        """Show one event."""
        match event:
            case TokensCommitted():
                text = "".join(span.text for span in event.spans)
                if event.channel is Channel.ANSWER:
                    self._write(self._out, text)
                elif self._shows_thinking:
                    self._write(self._err, text)
            case ModelLoading():
                self._load(event)
            case ModelReady():
                self._wipe()
                for note in event.info.notes:
                    self._say(note)
            case Notice():
                self._say(joined(event.message, event.hint))
            case TurnFinished():
                self._finish(event)
            case _:
                pass

    def fail(self, message: str, hint: str) -> None:
        """Say that there will be no answer."""
        self._say(message)
        if hint:
            self._line(f"  {hint}")

    def _load(self, event: ModelLoading) -> None:
        """Write over the line before, with blanks where it was longer."""
        if self._shows_loading and (event.elapsed_s >= QUIET_S or self._n_loading):
            line = f"{loading.stage(event)}  {loading.progress(event)}"[:MAX_LOADING]
            self._err.write("\r" + line.ljust(self._n_loading))
            self._err.flush()
            self._n_loading = len(line)

    def _wipe(self) -> None:
        if self._n_loading:
            self._err.write("\r" + " " * self._n_loading + "\r")
            self._err.flush()
            self._n_loading = 0

    def _finish(self, event: TurnFinished) -> None:
        if not self._ends[id(self._out)]:
            self._write(self._out, "\n")
        if event.reason not in _AS_ASKED:
            self.fail(event.message, event.hint)
        if self._is_verbose:
            self._line(why(event.usage))
            self._line(receipt(event.usage, event.reason))

    def _say(self, text: str) -> None:
        self._line(f"ds4chat: {text}")

    def _line(self, text: str) -> None:
        self._wipe()
        is_one_screen = self._err.isatty() and self._out.isatty()
        if not self._ends[id(self._err)] or (is_one_screen and not self._ends[id(self._out)]):
            self._write(self._err, "\n")
            self._ends[id(self._out)] |= is_one_screen
        self._write(self._err, f"{text}\n")

    def _write(self, stream: TextIO, text: str) -> None:
        if not text:
            return
        stream.write(harmless(text) if stream.isatty() else text)
        stream.flush()
        self._ends[id(stream)] = text.endswith("\n")


class JsonPrinter:
    """One JSON object a line on `out`: model, start, tokens, rounds, notices, receipt."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def take(self, event: Event) -> None:
        """Show one event."""
        match event:
            case ModelReady():
                self._put("model", dataclasses.asdict(event.info))
            case TurnStarted():
                self._put("start", {"n_prompt": event.n_prompt, "n_cached": event.n_cached})
            case TokensCommitted():
                tokens = [
                    {"text": span.text, **dataclasses.asdict(span.token)}
                    for span in event.spans
                ]
                self._put(
                    "tokens", {"channel": event.channel, "at_s": event.at_s, "tokens": tokens}
                )
            case RoundVerified():
                self._put("round", _fields(event))
            case PlainStep():
                self._put("plain_step", _fields(event))
            case PolicyChanged():
                self._put("policy", _fields(event))
            case Notice():
                self._put("notice", _fields(event))
            case TurnFinished():
                self._put("receipt", _fields(event))
            case _:
                pass

    def fail(self, message: str, hint: str) -> None:
        """Say that there will be no answer."""
        self._put("error", {"message": message, "hint": hint})

    def _put(self, kind: str, fields: dict[str, Any]) -> None:
        self._out.write(json.dumps({"event": kind, **fields}) + "\n")
        self._out.flush()


def _fields(event: Any) -> dict[str, Any]:
    fields = dataclasses.asdict(event)
    fields.pop("turn_id", None)
    return fields
