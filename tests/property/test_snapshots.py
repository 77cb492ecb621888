"""A resumed session is the uninterrupted one, wherever and however often it was interrupted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from ds4chat.engine.snapshot_files import DiskFiles
from ds4chat.engine.snapshots import restore, take, write
from ds4chat.protocol.types import Token
from tests.engines import SMALL, differing, open_half, open_pair, random_ids

BORDERS = [n + off for n in (4, 128, 512) for off in (-2, -1, 0, 1)]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("full")
    with open_pair(folder, seed=41, options={"end_ids": []}, **SMALL) as engine:
        yield engine


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_half(tmp_path_factory.mktemp("half"), seed=42, **SMALL) as engine:
        yield engine


def advance(session: Session, n_rounds: int, *, plainly: bool) -> list[Token]:
    """Some rounds, or some plain steps, with the provenance of every token."""
    tokens: list[Token] = []
    for _ in range(n_rounds):
        first = session.choose()
        tokens += [session.step(first)] if plainly else session.speculate(first, 64)
    return tokens


moves = st.tuples(st.integers(0, 4), st.booleans())


@pytest.mark.parametrize("kind", ["full", "half"])
@settings(max_examples=15, deadline=None)
@given(
    n=st.sampled_from(BORDERS),
    temperature=st.sampled_from([0.0, 0.8, 1.5]),
    seed=st.integers(0, 2**63),
    plan=st.lists(moves, min_size=1, max_size=3),
)
def test_resumed_equals_uninterrupted(
    kind: str,
    request: pytest.FixtureRequest,
    n: int,
    temperature: float,
    seed: int,
    plan: list[tuple[int, bool]],
) -> None:
    engine: Engine = request.getfixturevalue(kind)
    one = engine.session(temperature=temperature, seed=seed)
    one.sync(random_ids(engine, n))
    two = engine.session(temperature=temperature, seed=seed)
    two.sync(random_ids(engine, n))
    with tempfile.TemporaryDirectory() as name:
        for turn, (n_rounds, plainly) in enumerate(plan):
            assert advance(one, n_rounds, plainly=plainly) == advance(
                two, n_rounds, plainly=plainly
            )
            write(take(engine, two, Path(name)), f"t{turn}", DiskFiles())
            two.close()
            two = restore(engine, Path(name), f"t{turn}").session
            two.poison()
            assert differing(one, two) == []
    assert advance(one, 4, plainly=False) == advance(two, 4, plainly=False)
    assert differing(one, two) == []
    more = [*one.ids, *random_ids(engine, 7, seed=1)]
    assert one.sync(more) == two.sync(more)
    assert differing(one, two) == []
