"""A long reply costs no more per token at its end than at its beginning, counted in calls."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from ds4chat.protocol.events import Event, RoundVerified, TokensCommitted, TurnStarted
from ds4chat.protocol.types import Channel, Source, Span, ThinkMode, Token
from ds4chat.tui.figures import Figures
from ds4chat.tui.state import Conversation
from tests.cases.work import Work
from tests.pilot.transcript_host import transcript
from tests.scripted_engine import Plan
from tests.unit.engine.turn_desk import Desk

WINDOWS = 8
KINDS = {
    "words": "word ",
    "newlines": "\n",
    "no space": "ab",
    "cjk": "中",
    "paragraphs": "word\n\n",
    "list": "- item\n",
    "quote": "> a\n",
    "code": "x = 1\n",
}


def spans(text: str, n: int) -> tuple[Span, ...]:
    sources = itertools.cycle((Source.FALLBACK, Source.ACCEPTED, Source.ACCEPTED))
    return tuple(
        Span(
            text=text,
            token=Token(
                id=7, source=next(sources), round=1, position=i % 3, confidence=0.5, margin=1.0
            ),
        )
        for i in range(n)
    )


def check_level(costs: list[int]) -> None:
    """The work of equal windows, the first one (which fills the screen) left out."""
    early = max(costs[1:3])
    assert max(costs[3:]) <= 1.25 * early + 200, costs


async def stream(kind: str, n_tokens: int) -> None:
    first = "```py\n" if kind == "code" else ""
    async with transcript(80, 24) as widget:
        costs = []
        for window in range(WINDOWS):
            with Work() as work:
                for _ in range(n_tokens // WINDOWS // 20):
                    text = first if window == 0 and first else ""
                    widget.append(
                        1, Channel.ANSWER, (*spans(text, bool(text)), *spans(KINDS[kind], 20))
                    )
                    first = ""
                    widget.flush()
            costs.append(work.calls)
        check_level(costs)


@pytest.mark.parametrize("kind", ["paragraphs", "newlines"])
async def test_the_transcript_at_2400_tokens(kind: str) -> None:
    await stream(kind, 2_400)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_the_transcript_at_20000_tokens(kind: str) -> None:
    await stream(kind, 20_000)


def test_what_the_chat_keeps_of_20000_tokens() -> None:
    """The conversation and the figures behind the screen."""
    conversation, figures = Conversation(), Figures()
    turn = conversation.ask("go", ThinkMode.OFF)
    costs = []
    for _ in range(WINDOWS):
        with Work() as work:
            for number in range(20_000 // WINDOWS // 4):
                made = spans("word ", 4)
                assert conversation.add_spans(turn.turn_id, Channel.ANSWER, made)
                figures.add_round(
                    RoundVerified(
                        turn_id=turn.turn_id, round=number, proposal_ids=(1,) * 5,
                        proposal_texts=("a",) * 5, confidences=(0.5,) * 5, n_accepted=3,
                        draft_s=0.1, verify_s=0.1, decision="",
                    )
                )  # fmt: skip
        costs.append(work.calls)
    check_level(costs)
    assert len("".join(turn.answer)) == 5 * 20_000


@pytest.mark.parametrize(
    "think", [ThinkMode.OFF, pytest.param(ThinkMode.HIGH, marks=pytest.mark.slow)]
)
def test_the_engines_loop_over_20000_tokens(think: ThinkMode) -> None:
    """Channels, stop texts, statistics, the watch for loops: nothing looks back further."""
    desk = Desk()
    desk.engine.info = SimpleNamespace(  # type: ignore[assignment]
        ctx=1 << 20, block_size=desk.engine.info.block_size
    )
    turn = desk.turn("endless", think=think, stop=("never said",), max_tokens=20_000)
    words = desk.engine.tokenize("one two three four 98,765. ")
    desk.engine.plans[desk.ids("endless", think)] = Plan(reply=[], cycle=words)
    counts = [0]
    costs: list[int] = []

    def count(event: Event) -> None:
        if isinstance(event, TokensCommitted):
            counts[0] += len(event.spans)
        elif isinstance(event, TurnStarted):
            desk.events.append(event)

    desk_tools = turn._tools
    object.__setattr__(desk_tools, "emit", count)
    turn._emit = count  # the events themselves are not kept
    is_running = True
    while is_running:
        goal = 2_500 * (len(costs) + 1)
        with Work() as work:
            while counts[0] < goal and is_running:
                is_running = turn.advance()
        costs.append(work.calls)
    assert counts[0] == 20_000
    check_level(costs[:WINDOWS])
