"""Conversations for the store's tests: real streams of the scripted engine, a fixed clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from ds4chat.demo.script import Reply, Script, default_info
from ds4chat.demo.tally import Tally
from ds4chat.demo.turn import Drafting, Turn
from ds4chat.protocol.commands import Submit
from ds4chat.protocol.events import Event, TokensCommitted, TurnFinished, TurnStarted
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Source,
    Span,
    SpecState,
    ThinkMode,
    Token,
    Usage,
)
from ds4chat.store.session import Session

THINKING = "The person wants a sum. Two and two are four; say so, and say why."
ANSWER = (
    "It is **four**.\n\n```python\nassert 2 + 2 == 4\n```\n\nThat holds for any counters. 🚀\n"
)
SCRIPT = Script(
    replies=(Reply(answer=ANSWER, thinking=THINKING, accepts=(5, 3, 0, 4, 5, 1)),),
    info=replace(default_info(ctx=4096), name="scripted (not a model)"),
)


def clock() -> Callable[[], str]:
    """A clock that ticks a second each time it is read."""
    seconds = itertools.count()
    return lambda: f"2026-07-31T12:{(n := next(seconds)) // 60 % 60:02d}:{n % 60:02d}.000Z"


def stream(
    submit: Submit,
    drafting: Drafting,
    *,
    reply: Reply | None = None,
    answer_after: int | None = None,
    stop_after: int | None = None,
) -> Iterator[Event]:
    """All events of one scripted turn.

    Args:
        submit: what was asked.
        drafting: what speculation does, kept over the turns of a session.
        reply: what is said; None: the script's first reply.
        answer_after: steps after which the reasoning is closed by force.
        stop_after: steps after which the person stops the reply.
    """
    info = SCRIPT.info
    tally = Tally(
        block_size=info.block_size, n_prompt=20, n_cached=0, plain_step_s=SCRIPT.plain_step_s
    )
    turn = Turn(submit, SCRIPT, reply or SCRIPT.replies[0], tally, drafting)
    yield TurnStarted(turn_id=submit.turn_id, lane=0, n_prompt=20, n_cached=0)
    for place, events in enumerate(turn.steps(), start=1):
        yield from events
        if place == answer_after:
            turn.stop_thinking()
        if place == stop_after:
            turn.cancel()


def talk(
    session: Session,
    question: str,
    think: ThinkMode = ThinkMode.OFF,
    *,
    drafting: Drafting | None = None,
    reply: Reply | None = None,
    answer_after: int | None = None,
    stop_after: int | None = None,
) -> None:
    """Ask and have the scripted reply saved."""
    asked = session.ask(question, think)
    answer(
        session, asked.id, think, drafting=drafting, reply=reply, answer_after=answer_after,
        stop_after=stop_after,
    )  # fmt: skip


def answer(
    session: Session,
    turn_id: int,
    think: ThinkMode,
    *,
    drafting: Drafting | None = None,
    reply: Reply | None = None,
    answer_after: int | None = None,
    stop_after: int | None = None,
) -> None:
    """Have the scripted reply to a turn saved."""
    submit = Submit(
        request_id=turn_id, turn_id=turn_id, messages=session.messages(), think=think
    )
    events = stream(
        submit,
        drafting or Drafting(state=SpecState.ON),
        reply=reply,
        answer_after=answer_after,
        stop_after=stop_after,
    )
    for event in events:
        session.report(event)


def span(text: str, number: int = 7, source: Source = Source.PLAIN, in_round: int = 0) -> Span:
    """One token's text."""
    token = Token(
        id=number, source=source, round=in_round, position=0, confidence=None, margin=1.5
    )
    return Span(text=text, token=token)


def tokens(turn_id: int, text: str) -> TokensCommitted:
    """A committed answer, a token a word."""
    spans = tuple(span(word, n) for n, word in enumerate(text.split(" ")))
    return TokensCommitted(turn_id=turn_id, channel=Channel.ANSWER, spans=spans)


def finished(turn_id: int) -> TurnFinished:
    """The end of a turn."""
    return TurnFinished(
        turn_id=turn_id, reason=FinishReason.STOP, usage=Usage(n_tokens=1), ids=()
    )


def say(session: Session, question: str, reply: str = "an answer") -> int:
    """A short turn; returns its number."""
    turn = session.ask(question, ThinkMode.OFF)
    session.report(tokens(turn.id, reply))
    session.report(finished(turn.id))
    return turn.id
