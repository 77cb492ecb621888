"""Greedy text with the support file is that without it, token for token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.protocol.types import Policy, SpecOptions
from tests.cases.replies import BLOCK, FIXED, PLAIN, drafting, open_small, reply
from tests.engines import SMALL, differing, open_pair, plain_tokens, random_ids, spec_tokens

MONEY = SpecOptions(policy=Policy.MONEY, confidence_threshold=0.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair")) as opened:
        yield opened


def check(engine: Engine, alone: Engine, n_prompt: int, n_tokens: int) -> None:
    """Without the support file, with it, and with drafts that are partly right."""
    prompt = random_ids(engine, n_prompt, seed=n_prompt)
    plain, spec, mixed = alone.session(), engine.session(), engine.session()
    for session in (plain, spec, mixed):
        session.sync(prompt)
    text = plain_tokens(plain, n_tokens)
    assert len(text) == n_tokens
    assert spec_tokens(spec, n_tokens) == text
    with drafting(engine, n_prompt, text, lambda n: (n * 7 + n // 5) % (BLOCK + 1)):
        assert spec_tokens(mixed, n_tokens) == text
    assert differing(mixed, spec) == []


@pytest.mark.slow
@pytest.mark.parametrize("n_prompt", [1, 2, 9, 40, 100, 126, 127, 128, 300, 511])
def test_ten_prompts_of_500_tokens(
    n_prompt: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pair")
    ends: dict[str, Any] = {"end_ids": []}
    with open_pair(folder, options=ends, seed=61, **SMALL) as engine:
        path = engine.info.path
        with Engine.open(path, policy="fixed", backend="cpu", end_ids=[]) as alone:
            check(engine, alone, n_prompt, 500)


@pytest.mark.parametrize("n_prompt", [2, pytest.param(125, marks=pytest.mark.slow)])
def test_prompts_of_60_tokens(engine: Engine, n_prompt: int) -> None:
    with Engine.open(engine.info.path, policy="fixed", backend="cpu", end_ids=[]) as alone:
        check(engine, alone, n_prompt, 60)


def test_a_policy_that_looks_at_the_clock_changes_no_word(engine: Engine) -> None:
    prompt = random_ids(engine, 30)
    text = reply(engine, prompt, spec=PLAIN, max_tokens=60).ids
    with drafting(engine, 30, text, lambda n: n % (BLOCK + 1)):
        made = reply(engine, prompt, spec=MONEY, max_tokens=60)
    assert made.ids == text
    assert made.log.end.usage.n_accepted > 10


def test_drafts_that_are_the_prompt_again_change_no_word(engine: Engine) -> None:
    """A drafter that copies from the context, as a tempting cheat would."""
    prompt = random_ids(engine, 30)
    text = reply(engine, prompt, spec=PLAIN, max_tokens=40).ids
    with drafting(engine, 30, prompt * 2, lambda n: BLOCK):
        assert reply(engine, prompt, max_tokens=40).ids == text


def test_the_second_turn_too(engine: Engine) -> None:
    """What speculation left in the cache is what plain decoding would have left."""
    prompt = random_ids(engine, 30)
    plain = reply(engine, prompt, spec=PLAIN, max_tokens=30)
    more = [*prompt, *plain.ids, *random_ids(engine, 9, seed=5)]
    with drafting(engine, 30, plain.ids, lambda n: n % (BLOCK + 1)):
        spec = reply(engine, prompt, spec=FIXED, max_tokens=30)
    after = [
        reply(engine, more, spec=PLAIN, max_tokens=20, session=made.session)
        for made in (plain, spec)
    ]
    assert after[0].ids == after[1].ids
    assert after[0].log.started.n_cached == after[1].log.started.n_cached == 60
    assert differing(after[0].session, after[1].session) == []
