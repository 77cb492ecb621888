"""Going back to earlier prompts: what is read again, and that the state is the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ds4chat.engine.engine import Engine
from tests.engines import SMALL, differing, open_pair, other_id, random_ids, spec_tokens


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL) as opened:
        yield opened


def test_a_prompt_comes_back_without_being_read_again(engine: Engine) -> None:
    """Also after the rings were overwritten, bit for bit, and more than once."""
    prompt = random_ids(engine, 150)
    held, fresh = engine.session(), engine.session()
    fresh.sync(prompt)
    held.sync(prompt)
    for n_more in (9, 400):
        held.sync([*prompt, *random_ids(engine, n_more, seed=5)])
        held.poison()
        assert held.sync(prompt) == len(prompt) - 1
        assert differing(held, fresh) == []
    assert spec_tokens(held, 20) == spec_tokens(fresh, 20)
    assert differing(held, fresh) == []


def test_another_opener_reads_only_what_follows_it(engine: Engine) -> None:
    """As when the reasoning of the last reply is left out of the next prompt."""
    prompt = random_ids(engine, 40)
    held, other = engine.session(), engine.session()
    held.sync(prompt)
    spec_tokens(held, 30)
    other.sync(prompt)
    without = [*prompt[:-1], other_id(engine, prompt[-1]), *random_ids(engine, 20, seed=8)]
    assert held.sync(without) == other.sync(without) == len(prompt) - 1
    assert differing(held, other) == []
    short = prompt[:39]
    assert held.sync(short) == 0  # the mark stands at 39: its last token must be evaluated
    fresh = engine.session()
    fresh.sync(short)
    assert differing(held, fresh) == []


def test_only_the_last_marks_are_kept(engine: Engine) -> None:
    ids = random_ids(engine, 100)
    session = engine.session()
    for n in (20, 40, 60, 80):
        session.sync(ids[:n])
    assert session.sync([*ids[:30], 7]) == 0
    for n in (20, 40, 60):
        session.sync(ids[:n])
    assert session.sync([*ids[:30], 7]) == 19
