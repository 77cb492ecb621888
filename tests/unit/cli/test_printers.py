"""Replies as text and as JSON Lines."""

from __future__ import annotations

import io
import json

import pytest

from ds4chat.cli.printers import JsonPrinter, TextPrinter, Transcript, harmless
from ds4chat.protocol.events import (
    Event,
    ModelLoading,
    Notice,
    RoundVerified,
    TokensCommitted,
    TurnFinished,
)
from ds4chat.protocol.types import Channel, FinishReason, Source, Span, ThinkMode, Token, Usage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Twin(Terminal):
    """Another stream to the same terminal."""

    def __init__(self, screen: Terminal) -> None:
        super().__init__()
        self._screen = screen

    def write(self, text: str) -> int:
        return self._screen.write(text)


def tokens(text: str, channel: Channel = Channel.ANSWER) -> TokensCommitted:
    token = Token(id=7, source=Source.ACCEPTED, round=1, position=2, confidence=0.5, margin=1.5)
    return TokensCommitted(turn_id=1, channel=channel, spans=(Span(text=text, token=token),))


def finished(reason: FinishReason = FinishReason.STOP, message: str = "") -> TurnFinished:
    usage = Usage(n_tokens=3, decode_s=1.5)
    return TurnFinished(
        turn_id=1, reason=reason, usage=usage, ids=(7,), message=message, hint="fix it"
    )


def text_of(*events: Event, thinking: bool = False, verbose: bool = False) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    printer = TextPrinter(out, err, shows_thinking=thinking, is_verbose=verbose)
    for event in events:
        printer.take(event)
    return out.getvalue(), err.getvalue()


def test_the_answer_alone_is_on_standard_output() -> None:
    events: list[Event] = [tokens("hm", Channel.THINKING), tokens("a"), tokens("b"), finished()]
    assert text_of(*events) == ("ab\n", "")


def test_reasoning_goes_to_standard_error_when_asked_for() -> None:
    events: list[Event] = [tokens("hm", Channel.THINKING), tokens("a\n"), finished()]
    out, err = text_of(*events, thinking=True, verbose=True)
    assert out == "a\n"
    first, *middle, last = err.splitlines()
    assert first == "hm"
    assert last.startswith("3 tok · 2.0 tok/s")
    assert middle[-1] == "Every token took a plain step: nothing was drafted."


@pytest.mark.parametrize("reason", [FinishReason.ERROR, FinishReason.CONTEXT_FULL])
def test_a_broken_end_is_told_with_its_fix(reason: FinishReason) -> None:
    out, err = text_of(tokens("a"), finished(reason, "it broke"))
    assert out == "a\n"
    assert err == "ds4chat: it broke\n  fix it\n"


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CANCELLED])
def test_an_end_that_was_asked_for_needs_no_words(reason: FinishReason) -> None:
    assert text_of(tokens("a"), finished(reason, "limit"))[1] == ""


def test_notices_are_told() -> None:
    notice = Notice(turn_id=None, level="warning", message="no speculation", hint="Why.")
    assert text_of(notice) == ("", "ds4chat: no speculation. Why.\n")


def test_a_notice_stands_on_a_line_of_its_own_on_one_terminal() -> None:
    screen = Terminal()  # both streams are shown on it
    aside = Twin(screen)
    printer = TextPrinter(screen, aside, shows_thinking=False, is_verbose=False)
    notice = Notice(turn_id=1, level="warning", message="no speculation", hint="")
    for event in (tokens("2"), notice, tokens("+2")):
        printer.take(event)
    assert screen.getvalue() == "2\nds4chat: no speculation\n+2"


def load_of(done: int, elapsed_s: float) -> ModelLoading:
    return ModelLoading(
        stage="reading\x1b weights",
        done_bytes=done << 30,
        total_bytes=80 << 30,
        elapsed_s=elapsed_s,
        done_tensors=done * 10,
        total_tensors=800,
    )


def test_loading_is_written_over_and_wiped_before_anything_else() -> None:
    err = io.StringIO()
    printer = TextPrinter(
        io.StringIO(), err, shows_thinking=False, is_verbose=False, shows_loading=True
    )
    for event in (load_of(1, 0.1), load_of(20, 10), load_of(40, 20), load_of(80, 30)):
        printer.take(event)
    printer.fail("broken", "")
    first, second, third, wiped, rest = err.getvalue()[1:].split("\r")
    assert first == (
        "reading␛ weights  tensor 200 of 800, 21.5 of 85.9 GB, 10 s, about 30 s left"
    )
    assert second.rstrip().endswith("20 s, about 20 s left")
    assert third.rstrip().endswith("30 s")
    assert len(first) == len(second) == len(third) < 80
    assert wiped == " " * len(third.rstrip())
    assert rest == "ds4chat: broken\n"


def test_loading_is_silent_where_a_line_cannot_be_written_over() -> None:
    assert text_of(load_of(20, 10)) == ("", "")


EVIL = "a\x1b[31mb\x07\x9b2J\x7f\rc\td\n"


def test_model_text_cannot_command_a_terminal() -> None:
    assert harmless(EVIL) == "a\ufffd[31mb\ufffd\ufffd2J\ufffd\ufffdc\td\n"
    out = Terminal()
    TextPrinter(out, io.StringIO(), shows_thinking=False, is_verbose=False).take(tokens(EVIL))
    assert out.getvalue() == harmless(EVIL)


def test_a_pipe_gets_the_text_as_it_is() -> None:
    assert text_of(tokens(EVIL))[0] == EVIL


def test_json_lines_carry_provenance_and_stay_ascii() -> None:
    out = io.StringIO()
    printer = JsonPrinter(out)
    printer.take(tokens("é" + EVIL))
    printer.take(
        RoundVerified(
            turn_id=1, round=1, proposal_ids=(7, 8), proposal_texts=("a", "b"),
            confidences=(0.5, 0.4), n_accepted=1, draft_s=0.1, verify_s=0.2, decision="why",
        )
    )  # fmt: skip
    printer.take(finished())
    printer.fail("no", "fix")
    text = out.getvalue()
    assert text.isascii()
    assert "\x1b" not in text
    first, second, third, last = map(json.loads, text.splitlines())
    assert first == {
        "event": "tokens",
        "channel": "answer",
        "at_s": 0.0,
        "tokens": [
            {
                "text": "é" + EVIL, "id": 7, "source": "accepted", "round": 1, "position": 2,
                "confidence": 0.5, "margin": 1.5, "logit": None,
            }
        ],
    }  # fmt: skip
    assert second["event"] == "round"
    assert second["proposal_ids"] == [7, 8]
    assert third["event"] == "receipt"
    assert third["usage"]["n_tokens"] == 3
    assert last == {"event": "error", "message": "no", "hint": "fix"}


def test_a_transcript_becomes_the_next_questions_message() -> None:
    transcript = Transcript()
    transcript.take(tokens("hm", Channel.THINKING))
    transcript.take(tokens("a"))
    message = transcript.message(finished(), ThinkMode.HIGH)
    assert (message.text, message.reasoning, message.ids) == ("a", "hm", (7,))
    assert message.think is ThinkMode.HIGH
