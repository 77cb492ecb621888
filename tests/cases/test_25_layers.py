"""Each kind of layer alone against the float64 reference, however a session came to a place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from tests.engines import random_ids
from tests.golden.test_engine_against_reference import (
    LONG,
    NEAR_TIE,
    SHORT,
    TOLERANCE,
    compare,
    open_blocks,
    open_plain,
)
from tests.make_pair import PairPaths, make_pair
from tests.reference import read_pair, run_target
from tests.unit.engine.saving import restored, saved

ONE_KIND: dict[str, tuple[int, ...]] = {
    "window": (0, 0),
    "ratio 4": (4, 4),
    "ratio 128": (128,),
}
ALL_KINDS = (0, 4, 128)


def pair_of(folder: Path, ratios: tuple[int, ...], seed: int = 17) -> PairPaths:
    return make_pair(
        folder,
        ratios=ratios,
        n_hash=1,
        seed=seed,
        index_topk=64,
        target_layers=(0,),
        n_stages=1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_KIND)
def test_one_kind_of_layer_over_5000_positions(tmp_path: Path, kind: str) -> None:
    compare(pair_of(tmp_path, ONE_KIND[kind]), LONG, seed=4, n_walks=1)


@pytest.mark.parametrize(
    "opened", [open_plain, pytest.param(open_blocks, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ONE_KIND)
def test_one_kind_of_layer_up_to_its_first_window(
    tmp_path: Path, kind: str, opened: Callable[[PairPaths], Engine]
) -> None:
    compare(pair_of(tmp_path, ONE_KIND[kind]), SHORT, seed=5, n_walks=1, opened=opened)


def agrees(paths: PairPaths, session: Session, more: list[int], *, n_left_out: int = 0) -> None:
    """Continue with `more`, row by row, and compare every row with the reference."""
    ids, rows = list(session.ids), [session.logits()]
    for token in more:
        session.step(token)
        ids.append(token)
        rows.append(session.logits())
    wanted = run_target(read_pair(paths.base, paths.support), ids, round_trips=False)
    margin = np.minimum(wanted.router_margin, wanted.index_margin)
    start = len(ids) - len(rows)
    near = [at for at in range(start, len(ids)) if 0 < margin[at] < NEAR_TIE]
    assert len(near) <= n_left_out, near
    for at, row in enumerate(rows, start=start):
        if at not in near:
            assert np.abs(row - wanted.logits[at]).max() <= TOLERANCE, at


PLACES = [127, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 126, 128, 131, 259))]


@pytest.mark.parametrize("n", PLACES)
def test_a_restored_session(tmp_path: Path, n: int) -> None:
    """Positions, open groups and rings of a snapshot are those of the text."""
    paths = pair_of(tmp_path, ALL_KINDS)
    with open_plain(paths) as engine:
        ids = random_ids(engine, n + 12, seed=n)
        session = engine.session()
        session.sync(ids[:n])
        saved(engine, session, tmp_path / "s", "a")
        agrees(paths, restored(engine, tmp_path / "s", "a"), ids[n:])


@pytest.mark.parametrize("n", PLACES)
def test_a_session_that_went_back_and_took_another_way(tmp_path: Path, n: int) -> None:
    """An edited question: what follows is computed as if the first had never been."""
    paths = pair_of(tmp_path, ALL_KINDS)
    with open_plain(paths) as engine:
        ids, others = random_ids(engine, n + 40, seed=n), random_ids(engine, 20, seed=n + 1)
        session = engine.session()
        session.sync(ids[:n])
        session.sync(ids)
        session.sync([*ids[: n - 1], *others[:8]])
        agrees(paths, session, others[8:])


@pytest.mark.parametrize("block", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_of_a_pass_whose_drafts_were_wrong(tmp_path: Path, block: int) -> None:
    """Over the places where a draft that is not kept closes a group of 4 or one of 128."""
    paths = pair_of(tmp_path, ALL_KINDS)
    with open_plain(paths) as engine:
        ids = random_ids(engine, 124, seed=9)
        session = engine.session()
        session.sync(ids)
        for _ in range(8):
            first = session.choose()
            wrong = [(first + 5 + i) % engine.info.n_vocab for i in range(block)]
            session.speculate(first, 64, proposal=wrong)
        agrees(paths, session, random_ids(engine, 4, seed=10))
