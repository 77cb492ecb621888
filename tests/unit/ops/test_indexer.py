"""The indexer's scores and its choice: visible rows only, ties to the lowest index."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.ops.indexer import choose_rows, score_rows
from tests.unit.ops.exact import double, normal, single

Rows = NDArray[np.float32]


def mask_of(visible: list[int], n_slots: int) -> mx.array:
    seen = np.arange(n_slots) < np.array(visible)[:, None]
    return mx.array(np.where(seen, 0.0, -np.inf).astype(np.float32))


def by_sorting(row: Rows, visible: int, k: int) -> list[int]:
    best = sorted(range(visible), key=lambda j: (-row[j], j))
    return sorted(best[:k])


def chosen(scores: Rows, visible: list[int], k: int) -> list[list[int]]:
    kept = np.array(choose_rows(single(scores), mask_of(visible, scores.shape[1]), k))
    assert set(np.unique(kept)) <= {0.0, -np.inf}
    return [np.flatnonzero(row == 0.0).tolist() for row in kept]


@pytest.mark.parametrize("k", [1, 2, 7, 16, 63, 64])
def test_choice_equals_sorting(k: int) -> None:
    scores, visible = normal(1, 8, 64), [64, 63, 40, 17, 16, 8, 1, 64]
    wanted = [by_sorting(s, v, k) for s, v in zip(scores, visible, strict=True)]
    assert chosen(scores, visible, k) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_ties_go_to_the_lowest_index(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, (8, 48)).astype(np.float32)
    visible, k = rng.integers(1, 49, 8).tolist(), int(rng.integers(1, 30))
    wanted = [by_sorting(s, v, k) for s, v in zip(scores, visible, strict=True)]
    assert chosen(scores, visible, k) == wanted


@pytest.mark.parametrize("score", [0.0, -5.0, 3.5])
def test_equal_scores_keep_the_first(score: float) -> None:
    scores = np.full((2, 20), score, np.float32)
    assert chosen(scores, [20, 3], 5) == [[0, 1, 2, 3, 4], [0, 1, 2]]


def test_zeros_of_both_signs_are_tied() -> None:
    scores = np.array([[0.0, -0.0, 0.0, -0.0, -1.0]], np.float32)
    assert chosen(scores, [5], 3) == [[0, 1, 2]]


@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf, 1e30])
def test_invisible_rows_do_not_matter(junk: float) -> None:
    scores = normal(2, 3, 32)
    spoiled, visible = scores.copy(), [30, 12, 2]
    for row, n in enumerate(visible):
        spoiled[row, n:] = junk
    assert chosen(spoiled, visible, 8) == chosen(scores, visible, 8)


def test_scores() -> None:
    q, weights, rows = normal(3, 4, 6, 32), normal(4, 4, 6), normal(5, 10, 32)
    found = double(score_rows(single(q), single(weights), single(rows)))
    for i in range(4):
        for j in range(10):
            wanted = sum(weights[i, h] * max(0.0, float(q[i, h] @ rows[j])) for h in range(6))
            assert found[i, j] == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_a_dead_row_spoils_only_its_own_score() -> None:
    q, weights, rows = normal(3, 4, 6, 32), normal(4, 4, 6), normal(5, 64, 32)
    spoiled = rows.copy()
    spoiled[40:] = np.nan
    found = double(score_rows(single(q), single(weights), single(spoiled)))
    wanted = double(score_rows(single(q), single(weights), single(rows)))
    assert np.array_equal(found[:, :40], wanted[:, :40])
