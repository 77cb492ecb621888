"""Starting near the end of the context: nothing is evaluated past it, and it is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Timeline
from ds4chat.protocol.types import FinishReason, Policy, Sampling, SpecOptions
from tests.cases.replies import BLOCK, FIXED, PLAIN, Reply, drafting, open_small, reply
from tests.engines import differing, random_ids

CTX = 70


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair"), ctx=CTX) as opened:
        yield opened


@pytest.fixture
def highest(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The position after the last one of every pass."""
    seen: list[int] = []
    evaluate = engine.runner.evaluate_rows

    def spy(timeline: Timeline, ids: Sequence[int], **more: Any) -> NDArray[np.float32]:
        seen.append(timeline.log.n + len(ids))
        return evaluate(timeline, ids, **more)

    monkeypatch.setattr(engine.runner, "evaluate_rows", spy)
    return seen


def check(engine: Engine, free: int, sampling: Sampling, spec: SpecOptions) -> Reply:
    """Plain, then speculative with drafts that are all right and with the real drafter."""
    prompt = random_ids(engine, CTX - free)
    plain = reply(engine, prompt, spec=PLAIN, sampling=sampling)
    with drafting(engine, len(prompt), plain.ids, lambda n: BLOCK):
        scripted = reply(engine, prompt, spec=spec, sampling=sampling)
    real = reply(engine, prompt, spec=spec, sampling=sampling)
    for made in (plain, scripted, real):
        assert made.ids == plain.ids
        assert len(made.ids) == free
        assert made.log.end.reason is FinishReason.CONTEXT_FULL
        assert f"room for {CTX}" in made.log.end.message
        assert made.log.end.hint
        if free:
            assert made.session.n == CTX
            assert differing(made.session, plain.session) == []
    return scripted


@pytest.mark.parametrize("free", range(BLOCK + 2))
def test_free_positions_from_none_to_a_block_and_one(
    engine: Engine, highest: list[int], free: int
) -> None:
    made = check(engine, free, Sampling(), FIXED)
    assert max(highest, default=0) <= CTX
    assert sum(len(r.proposal_ids) for r in made.log.rounds) == max(0, min(free - 1, BLOCK))


@pytest.mark.parametrize("policy", [Policy.MONEY, Policy.WINDOW])
@pytest.mark.parametrize("free", [1, 6])
def test_every_policy_keeps_the_limit(
    engine: Engine, highest: list[int], free: int, policy: Policy
) -> None:
    spec = SpecOptions(policy=policy, confidence_threshold=0.0)
    check(engine, free, Sampling(), spec)
    assert max(highest) <= CTX


@pytest.mark.parametrize("free", [2, 6])
def test_sampled_text_keeps_the_limit(engine: Engine, highest: list[int], free: int) -> None:
    check(engine, free, Sampling(temperature=0.8, seed=9), FIXED)
    assert max(highest) <= CTX


@pytest.mark.parametrize("limit", range(BLOCK + 2))
def test_the_smaller_of_two_limits_counts(
    engine: Engine, highest: list[int], limit: int
) -> None:
    """A token limit inside the last block of the context, on either side of its end."""
    free = 4
    prompt = random_ids(engine, CTX - free)
    text = reply(engine, prompt, spec=PLAIN).ids
    with drafting(engine, len(prompt), text, lambda n: BLOCK):
        made = reply(engine, prompt, max_tokens=limit)
    assert made.ids == text[: min(limit, free)]
    wanted = FinishReason.LENGTH if limit <= free else FinishReason.CONTEXT_FULL
    assert made.log.end.reason is wanted
    assert max(highest) <= CTX


def test_a_prompt_as_long_as_the_context_is_not_begun(
    engine: Engine, highest: list[int]
) -> None:
    for n in (CTX, CTX + 1, CTX * 40):
        made = reply(engine, random_ids(engine, n))
        assert (made.log.end.reason, made.ids) == (FinishReason.CONTEXT_FULL, [])
        assert made.session.n == 0
        assert f"{n:,}" in made.log.end.message
    assert highest == []
