"""What a dead engine still owed, and how its death is told."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from ds4chat.client import wire
from ds4chat.protocol.commands import CloseSession, Tokenize
from ds4chat.protocol.events import (
    Done,
    Event,
    Refused,
    StatsSnapshot,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import Channel, FinishReason, Source, Span, Token, Usage


def span(token_id: int) -> Span:
    token = Token(
        id=token_id, source=Source.PLAIN, round=0, position=0, confidence=None, margin=1.0
    )
    return Span(text="x", token=token)


def ledger_after(*events: Event) -> wire.Ledger:
    ledger = wire.Ledger()
    for event in events:
        ledger.received(event)
    return ledger


def test_unanswered_commands_are_refused_once() -> None:
    ledger = wire.Ledger()
    for request_id in (1, 2, 3):
        ledger.sent(Tokenize(request_id=request_id, text=""))
    ledger.received(Done(request_id=1))
    ledger.received(Refused(request_id=3, message="no"))
    (owed,) = ledger.close("it died")
    assert owed == Refused(request_id=2, message="it died", hint=wire.RESTART_HINT)
    assert ledger.close("it died") == []


def test_an_open_turn_is_finished_with_its_tokens() -> None:
    usage = Usage(n_tokens=2, decode_s=2.0)
    ledger = ledger_after(
        TurnStarted(turn_id=7, lane=0, n_prompt=5, n_cached=2),
        TokensCommitted(turn_id=7, channel=Channel.THINKING, spans=(span(1), span(2))),
        StatsSnapshot(turn_id=7, tps=1.0, usage=usage),
        TokensCommitted(turn_id=7, channel=Channel.ANSWER, spans=(span(3),)),
    )
    (owed,) = ledger.close("it died")
    assert owed == TurnFinished(
        turn_id=7, reason=FinishReason.ERROR, usage=replace(usage, n_tokens=3), ids=(1, 2, 3),
        message="it died", hint=wire.RESTART_HINT,
    )  # fmt: skip


def test_without_figures_the_prompt_is_still_known() -> None:
    ledger = ledger_after(TurnStarted(turn_id=7, lane=0, n_prompt=5, n_cached=2))
    (owed,) = ledger.close("it died")
    assert isinstance(owed, TurnFinished)
    assert owed.usage == Usage(n_prompt=5, n_cached=2)


def test_a_finished_turn_owes_nothing() -> None:
    ledger = ledger_after(
        TurnStarted(turn_id=7, lane=0, n_prompt=5, n_cached=2),
        TurnFinished(turn_id=7, reason=FinishReason.STOP, usage=Usage(), ids=()),
    )
    ledger.sent(CloseSession(request_id=1))
    ledger.received(Done(request_id=1))
    assert ledger.close("it died") == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-9, "killed by SIGKILL (often: out of memory)"),
        (-11, "killed by SIGSEGV"),
        (-200, "killed by signal 200"),
    ],
)
def test_death_in_words(status: int, words: str) -> None:
    assert wire.death(status).endswith(words)


def test_lines_are_bounded() -> None:
    parts = list(wire.lines(io.BytesIO(b"a\n" + b"b" * 25 + b"\nc"), limit=9))
    assert [len(part) for part in parts] == [2, 10, 10, 6, 1]
