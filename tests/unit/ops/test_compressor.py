"""Pooling of compressed rows and the overlap of ratio 4."""

from __future__ import annotations

import numpy as np
import pytest

from ds4chat.ops.compressor import entries_of, pool
from tests.unit.ops.exact import double, normal, single


@pytest.mark.parametrize("n_entries", [4, 8, 128])
def test_pool_is_a_softmax_for_each_channel(n_entries: int) -> None:
    kv, gate = normal(1, 3, n_entries, 10), normal(2, 3, n_entries, 10) * 5
    raised = np.exp(gate.astype(np.float64))
    wanted = (raised / raised.sum(axis=1, keepdims=True) * kv).sum(axis=1)
    assert np.allclose(double(pool(single(kv), single(gate))), wanted, rtol=1e-5, atol=1e-6)


def test_entries_of_weight_zero() -> None:
    kv, gate = normal(3, 1, 8, 6), normal(4, 1, 8, 6)
    gate[:, :4] = -np.inf
    found = double(pool(single(kv), single(gate)))
    assert np.allclose(found, double(pool(single(kv[:, 4:]), single(gate[:, 4:]))), rtol=1e-6)


def test_large_gates_do_not_overflow() -> None:
    kv, gate = normal(5, 1, 8, 6), normal(6, 1, 8, 6) * 1e4
    best = np.take_along_axis(kv, gate.argmax(axis=1, keepdims=True), axis=1)[:, 0]
    assert np.allclose(double(pool(single(kv), single(gate))), best)


def test_overlap_takes_first_halves_of_older_and_second_of_newer() -> None:
    raw = np.arange(8 * 2 * 6, dtype=np.float32).reshape(8, 2, 6)
    values, gates = (np.array(a) for a in entries_of(single(raw), True, False))
    for part, found in enumerate((values, gates)):
        assert np.array_equal(found[0, :4], raw[:4, part, :3])
        assert np.array_equal(found[0, 4:], raw[4:, part, 3:])


def test_the_first_row_has_four_entries() -> None:
    raw = normal(7, 4, 2, 6)
    values, gates = (np.array(a) for a in entries_of(single(raw), True, True))
    assert np.array_equal(values[0], raw[:, 0, 3:])
    assert np.array_equal(gates[0], raw[:, 1, 3:])


def test_without_overlap_all_channels_are_used() -> None:
    raw = normal(8, 128, 2, 6)
    values, gates = (np.array(a) for a in entries_of(single(raw), False, False))
    assert np.array_equal(values[0], raw[:, 0])
    assert np.array_equal(gates[0], raw[:, 1])
