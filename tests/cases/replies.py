"""Whole replies of a very small pair, with a drafter that says what a test wants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Proposal, Timeline
from ds4chat.engine.session import Session
from ds4chat.engine.turn_plan import TurnControls, TurnPlan, TurnTools
from ds4chat.engine.turns import Turn
from ds4chat.protocol.events import Event
from ds4chat.protocol.types import Policy, Sampling, SpecOptions, ThinkMode
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.stops import StopGate
from tests.engines import open_pair, other_id
from tests.grammar import TurnLog, read_turns

BLOCK = 5
FIXED = SpecOptions(policy=Policy.FIXED)
PLAIN = SpecOptions(policy=Policy.FIXED, enabled=False)
GREEDY = Sampling(temperature=0.0)

VERY_SMALL: dict[str, Any] = {
    "ratios": (4, 128),
    "n_hash": 1,
    "index_topk": 16,
    "sinkhorn_rounds": 2,
    "n_stages": 1,
    "heads": 2,
}
"""Options of `make_pair` for two layers, one of each kind of compressor."""


def open_small(folder: Path, *, seed: int = 51, ctx: int = 1024) -> Engine:
    """The engine over such a pair; nothing ends its text."""
    return open_pair(folder, options={"ctx": ctx, "end_ids": []}, seed=seed, **VERY_SMALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One turn: its session, and what it reported."""

    session: Session
    log: TurnLog
    events: list[Event]

    @property
    def ids(self) -> list[int]:
        return list(self.log.end.ids)


def reply(
    engine: Engine,
    prompt: Sequence[int],
    *,
    spec: SpecOptions = FIXED,
    sampling: Sampling = GREEDY,
    max_tokens: int | None = None,
    end_ids: frozenset[int] = frozenset(),
    stop: tuple[str, ...] = (),
    session: Session | None = None,
    before_round: Callable[[Session], None] | None = None,
) -> Reply:
    """Run a turn to its end; `before_round` is called before each of its steps."""
    held = session or engine.session()
    events: list[Event] = []
    ticks = itertools.count()
    plan = TurnPlan(
        turn_id=1, lane=0, ids=tuple(prompt), ctx=engine.info.ctx, end_ids=end_ids,
        close_think_id=None, block_size=BLOCK, sampling=sampling, spec=spec,
        max_tokens=max_tokens,
    )  # fmt: skip
    tools = TurnTools(
        splitter=ChannelSplitter(engine.tokenizer, ThinkMode.OFF), gate=StopGate(stop),
        text_of=engine.tokenizer.piece, emit=events.append,
        clock=lambda: next(ticks) * 0.01, plain_step_s=lambda: None,
    )  # fmt: skip
    turn = Turn(plan, held, TurnControls(), tools)
    while turn.advance():
        if before_round is not None:
            before_round(held)
    return Reply(session=held, log=read_turns(events)[1], events=events)


@contextmanager
def drafting(
    engine: Engine, n_prompt: int, text: Sequence[int], n_right: Callable[[int], int]
) -> Iterator[None]:
    """Let the drafter say the first `n_right(n)` tokens of what follows the anchor, then err.

    `n` is the number of committed tokens, the anchor excluded. Beyond `text` all is wrong.
    """

    def propose(timeline: Timeline, anchor: int) -> Proposal:
        n = timeline.log.n
        at = n - n_prompt + 1
        drafts = []
        for i, token in enumerate([*text[at : at + BLOCK], *[3] * BLOCK][:BLOCK]):
            is_right = i < n_right(n) and at + i < len(text)
            drafts.append(token if is_right else other_id(engine, token))
        return Proposal(tokens=tuple(drafts), confidences=(0.9,) * BLOCK, draft_s=0.001)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.runner, "propose", propose)
        yield
