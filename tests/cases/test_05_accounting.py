"""What is reported of acceptance is what happened, and nothing switches off in silence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Proposal, Timeline
from ds4chat.protocol.events import RoundVerified, TokensCommitted
from ds4chat.protocol.types import Source, SpecState
from ds4chat.tui.figures import Figures
from tests.cases.replies import BLOCK, PLAIN, Reply, drafting, open_small, reply
from tests.engines import random_ids

N_PROMPT = 12


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair")) as opened:
        yield opened


@pytest.fixture(scope="module")
def text(engine: Engine) -> list[int]:
    return reply(engine, random_ids(engine, N_PROMPT), spec=PLAIN, max_tokens=80).ids


def accepting(engine: Engine, text: list[int], n_right: int, n_tokens: int) -> Reply:
    with drafting(engine, N_PROMPT, text, lambda n: n_right):
        return reply(engine, random_ids(engine, N_PROMPT), max_tokens=n_tokens)


@pytest.mark.parametrize(("n_right", "rate"), [(0, 0.0), (3, 0.6), (5, 1.0)])
def test_accepted_over_tested_is_reported(
    engine: Engine, text: list[int], n_right: int, rate: float
) -> None:
    n_rounds = 6
    made = accepting(engine, text, n_right, n_rounds * (n_right + 1) + BLOCK)
    whole = [r for r in made.log.rounds if len(r.proposal_ids) == BLOCK]
    assert {r.n_accepted for r in whole} == {n_right}
    figures = Figures()
    for event in made.events:
        if isinstance(event, RoundVerified) and len(event.proposal_ids) == BLOCK:
            figures.add_round(event)
    n_tested = sum(len(r.proposal_ids) for r in whole)
    assert sum(r.n_accepted for r in whole) / n_tested == rate
    assert figures.counts.sum_accept_len / figures.counts.n_rounds == n_right + 1
    usage = made.log.end.usage
    assert usage.n_accepted / usage.n_drafted == pytest.approx(rate, abs=0.11)
    assert usage.by_position[0][0] == (len(made.log.rounds) if n_right else 0)


@pytest.mark.parametrize("n_right", [0, 3, 5])
def test_the_targets_own_token_is_no_draft(
    engine: Engine, text: list[int], n_right: int
) -> None:
    """Of each round the first token is the target's: after a miss, or the bonus."""
    made = accepting(engine, text, n_right, 30)
    own = Source.BONUS if n_right == BLOCK else Source.FALLBACK
    tokens = [s.token for e in made.events if isinstance(e, TokensCommitted) for s in e.spans]
    assert tokens[0].source is Source.PLAIN
    for before, token in pairwise(tokens):
        if token.position:
            assert token.source is Source.ACCEPTED
            assert token.round == before.round
        elif len(tokens) - tokens.index(token) > BLOCK:
            assert token.source is own
            assert token.confidence is None
    assert sum(t.source is Source.ACCEPTED for t in tokens) == made.log.end.usage.n_accepted


def test_a_mixed_reply_adds_up(engine: Engine, text: list[int]) -> None:
    with drafting(engine, N_PROMPT, text, lambda n: n % (BLOCK + 1)):
        made = reply(engine, random_ids(engine, N_PROMPT), max_tokens=60)
    usage = made.log.end.usage
    n_kept = sum(len(r.proposal_ids) for r in made.log.rounds)
    assert (usage.n_drafted, usage.n_rounds) == (n_kept, len(made.log.rounds))
    assert usage.n_rounds + usage.n_accepted + usage.n_plain_steps == usage.n_tokens == 60
    for i, (accepted, tested) in enumerate(usage.by_position):
        assert tested == sum(
            len(r.proposal_ids) > i and r.n_accepted >= i for r in made.log.rounds
        )
        assert accepted == sum(r.n_accepted > i for r in made.log.rounds)
    assert sum(usage.histogram) == usage.n_rounds


def test_a_drafter_that_fails_in_mid_reply_says_so_and_counts_no_more(
    engine: Engine, text: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    propose = engine.runner.propose

    def fail(timeline: Timeline, anchor: int) -> Proposal:
        if timeline.log.n > N_PROMPT + 20:
            raise RuntimeError("the device is lost")
        return propose(timeline, anchor)

    monkeypatch.setattr(engine.runner, "propose", fail)
    made = reply(engine, random_ids(engine, N_PROMPT), max_tokens=60)
    assert made.ids == text[:60]
    assert [n.level for n in made.log.notices] == ["warning"]
    assert "device is lost" in made.log.notices[0].message
    assert made.log.policy[-1].state is SpecState.UNAVAILABLE
    assert len(made.log.plain) >= 38
    usage = made.log.end.usage
    assert usage.n_drafted == sum(len(r.proposal_ids) for r in made.log.rounds)
