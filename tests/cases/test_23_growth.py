"""Memory while replies go on: the number of arrays is level, none of the state is lazy."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from tests.cases.replies import BLOCK, open_small
from tests.engines import plain_tokens, random_ids, spec_tokens
from tests.long_reply import Mark, open_engine, plain_steps, prompted, spec_rounds, watch


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair"), ctx=4096) as opened:
        yield opened


def n_arrays() -> int:
    gc.collect()
    return sum(isinstance(o, mx.array) for o in gc.get_objects())


def begun(engine: Engine) -> Session:
    session = engine.session()
    session.sync(random_ids(engine, 20))
    return session


@pytest.mark.slow
def test_20000_tokens_plain_and_speculative(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        plain = prompted(engine)
        seen: list[Mark] = []
        text = watch(plain_steps(plain), 20_000, 1_000, seen.append)
        plain.close()
        rounds = spec_rounds(engine, prompted(engine), text)
        assert watch(rounds, 20_000, 1_000, seen.append) == text
    for marks in (seen[1:20], seen[21:]):
        assert {mark.n_arrays for mark in marks} == {marks[0].n_arrays}


@pytest.mark.parametrize("mode", ["plain", "speculative", "rejected"])
def test_arrays_are_level_over_80_tokens(engine: Engine, mode: str) -> None:
    session = begun(engine)
    counts = []
    for _ in range(4):
        if mode == "plain":
            plain_tokens(session, 20)
        elif mode == "speculative":
            spec_tokens(session, 20)
        else:
            spec_tokens(session, 20, [[3] * BLOCK] * 20)
        counts.append(n_arrays())
    assert len(set(counts[1:])) == 1, counts
    session.close()


def test_many_sessions_leave_nothing(engine: Engine) -> None:
    """A lane that is closed, a chat that begins anew, a prompt that is edited."""
    counts = []
    for _ in range(3):
        for seed in range(3):
            session = begun(engine)
            spec_tokens(session, 6)
            session.sync(random_ids(engine, 30, seed=seed))
            session.close()
        counts.append(n_arrays())
    assert len(set(counts)) == 1, counts


@pytest.mark.parametrize("is_plain", [True, False])
def test_nothing_of_the_state_stays_unevaluated(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    """Every array of the state is given to `mx.eval` in every step, and at its end is real."""
    session = begun(engine)
    evaluated: set[int] = set()
    real = mx.eval

    def spy(*arrays: object) -> None:
        real(*arrays)
        flat = [a for group in arrays for a in (group if isinstance(group, list) else [group])]
        evaluated.update(map(id, flat))

    for _ in range(6):
        evaluated.clear()
        with monkeypatch.context() as patch:
            patch.setattr(mx, "eval", spy)
            first = session.choose()
            if is_plain:
                session.step(first)
            else:
                session.speculate(first, 20)
        state = session.timeline.arrays()
        assert state
        assert {id(array) for array in state} <= evaluated
