"""Attention with sinks, what dead slots may hold, and the grouped projection."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.ops.attention import attend, gather_keys, project_groups
from ds4chat.ops.linear import Dense
from tests.reference import maths
from tests.unit.ops.exact import double, normal, same_bits, single

HEADS, DIM = 3, 16


def seen(mask: NDArray[np.float32], keys: NDArray[np.float32], row: int) -> object:
    return keys[1:][mask[row, 1:] == 0].astype(np.float64)


def make_mask(n_rows: int, n_slots: int, seed: int) -> NDArray[np.float32]:
    shown = np.random.default_rng(seed).random((n_rows, n_slots)) < 0.5
    shown[:, :2] = True
    return np.where(shown, 0.0, -np.inf).astype(np.float32)


@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("sink_size", [0.0, 1.0, 40.0])
def test_attention_with_sinks(size: float, sink_size: float) -> None:
    q, keys = normal(1, 5, HEADS, DIM) * size, normal(2, 12, DIM) * size
    keys[0] = 0
    mask, sink = make_mask(5, 12, seed=3), normal(4, HEADS) * sink_size
    found = double(attend(single(q), single(keys), single(mask), single(sink)))
    for row in range(5):
        visible = keys[1:][mask[row, 1:] == 0].astype(np.float64)
        wanted = maths.attend(q[row].astype(np.float64), visible, sink.astype(np.float64))
        assert np.allclose(found[row], wanted, rtol=1e-4, atol=1e-4 * size)


def test_a_row_that_sees_only_the_sink_is_zero() -> None:
    mask = np.array([[0.0, -np.inf, -np.inf]], np.float32)
    keys = normal(5, 3, DIM)
    keys[0] = 0
    out = attend(single(normal(6, 1, HEADS, DIM)), single(keys), single(mask), mx.zeros(HEADS))
    assert not double(out).any()


@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf, 3e38])
def test_dead_slots_may_hold_anything(junk: float) -> None:
    window, rows = normal(7, 10, DIM), normal(8, 6, DIM)
    is_live = np.array([True] + [True] * 7 + [False] * 3 + [True] * 2 + [False] * 4)
    spoiled_window, spoiled_rows = window.copy(), rows.copy()
    spoiled_window[7:] = junk
    spoiled_rows[2:] = junk
    mask = np.where(is_live, 0.0, -np.inf).astype(np.float32)[None]
    q, sink = single(normal(9, 1, HEADS, DIM)), single(normal(10, HEADS))
    outputs = []
    for parts in ((window, rows), (spoiled_window, spoiled_rows)):
        keys = gather_keys([single(p) for p in parts], mx.array(is_live))
        outputs.append(attend(q, keys, single(mask), sink))
    assert np.isfinite(double(outputs[1])).all()
    assert same_bits(outputs[0], outputs[1])


def test_gathered_keys() -> None:
    window, rows = normal(11, 4, DIM), normal(12, 2, DIM)
    is_live = np.array([True, True, False, True, True, True, False])
    keys = np.array(gather_keys([single(window), single(rows)], mx.array(is_live)))
    wanted = np.concatenate([np.zeros((1, DIM), np.float32), window, rows])
    wanted[[2, 6]] = 0
    assert np.array_equal(keys, wanted)


def test_half_precision_rows_become_float32() -> None:
    rows = mx.array(normal(13, 2, DIM)).astype(mx.bfloat16)
    keys = gather_keys([rows], mx.array([True, True, True]))
    assert keys.dtype == mx.float32
    assert np.array_equal(np.array(keys)[1:], np.array(rows.astype(mx.float32)))


@pytest.mark.parametrize("n_groups", [1, 2, 4])
def test_grouped_projection(n_groups: int) -> None:
    heads, rank = 4, 5
    out = normal(14, 6, heads, DIM)
    stored = normal(15, n_groups * rank, heads // n_groups * DIM)
    weight = stored.reshape(n_groups, rank, -1).transpose(0, 2, 1)
    found = double(project_groups(single(out), Dense(weight=single(weight)), n_groups))
    for row in range(6):
        wide = out[row].reshape(n_groups, -1).astype(np.float64)
        groups = stored.reshape(n_groups, rank, -1)
        wanted = np.concatenate([groups[g] @ wide[g] for g in range(n_groups)])
        assert np.allclose(found[row], wanted, rtol=1e-5, atol=1e-5)
