"""The Markov chain of a draft and its norms, as the host build runs them."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops import dispatch
from ds4chat.ops import markov_kernels as mk
from ds4chat.ops.norms import norm_rows, rms_norm
from tests.kernels import host_build
from tests.kernels.cases import check
from tests.kernels.host_dispatch import HostDispatcher
from tests.kernels.markov_cases import families

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (1, 2, 3, 4, 5, 6))
HIGH, NAN, LOW = np.float32(7), np.float32(np.nan), np.float32(-np.inf)


@pytest.fixture
def host() -> Iterator[HostDispatcher]:
    before, made = dispatch.current(), HostDispatcher()
    dispatch.use(made)
    yield made
    dispatch.use(before)


@pytest.mark.parametrize(("n_logits", "dim"), [(5000, 544), (4200, 70)])
def test_kernels_are_close_and_ignore_other_rows(n_logits: int, dim: int) -> None:
    for maker in families(n_logits, dim):
        family = maker()
        found = check(family, host_build.run, SUBSETS)
        assert found.is_close, (family.label, found)
        assert found.is_invariant, family.label


def chosen(row: np.ndarray) -> tuple[int, float, int]:
    """The place that is told of a row, its value, and the row of the table remembered."""
    picked = mk.pick(mx.array(row[None]), mx.zeros((1, len(row))))
    assert picked is not None
    np.testing.assert_array_equal(np.array(picked.logits)[0], row)
    table = mx.broadcast_to(mx.arange(len(row))[:, None], (len(row), 8)).astype(mx.float32)
    memory = mk.remember(picked.tops, table)
    assert memory is not None
    told = mk.tell([picked.tops], [memory], mx.zeros((1, 8)), mx.zeros(16), mx.array(0.0))
    assert told is not None
    place, _, value = np.array(told)[:, 0]
    return int(place), float(value), int(np.array(memory)[0, 0])


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("size", [5003, 4096])
def test_of_equal_logits_the_first_is_chosen(size: int) -> None:
    row = np.random.default_rng(size).uniform(-1, 1, size).astype(np.float32)
    for places in ([size - 1], [3000, 4000], [1030, 1029], [2, 1, 4095], [0, 1023, 1024]):
        with_ties = row.copy()
        with_ties[places] = HIGH
        assert chosen(with_ties) == (min(places), 7.0, min(places))
    assert chosen(np.zeros(size, np.float32)) == (0, 0.0, 0)
    assert chosen(row[:24])[0] == row[:24].argmax()


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("at", [0, 1, 2999, 3001, 4999])
def test_nan_is_passed_over_and_told(at: int) -> None:
    row = np.random.default_rng(at).uniform(-1, 1, 5000).astype(np.float32)
    row[3000], row[at] = HIGH, NAN
    place, value, remembered = chosen(row)
    assert place == remembered == 3000
    assert np.isnan(value)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("fill", [NAN, LOW])
def test_a_row_without_numbers_has_its_first_place(fill: np.float32) -> None:
    row = np.full(3000, fill, np.float32)
    place, value, remembered = chosen(row)
    assert place == remembered == 0 == np.array(mx.argmax(mx.array(row)))
    np.testing.assert_array_equal(value, fill)
    row[2500] = -1e30
    assert chosen(row)[0] == 2500


def test_rows_are_normed_in_one_launch(host: HostDispatcher) -> None:
    x = mx.random.normal((19, 200), key=mx.random.key(1)).astype(mx.bfloat16)
    weight = mx.random.normal((200,), key=mx.random.key(2))
    made = norm_rows(x, weight, 1e-6, mx.float32)
    assert host.launched == {"norm_rows": 1}
    np.testing.assert_allclose(np.array(made), np.array(rms_norm(x, weight, 1e-6)), rtol=1e-5)
    assert norm_rows(x.astype(mx.float16), weight, 1e-6, mx.float32).shape == x.shape
    assert host.launched == {"norm_rows": 1}


def test_other_arrays_are_left_to_stock_operations(host: HostDispatcher) -> None:
    row, tops, memory = mx.zeros((1, 9)), mx.zeros((1, 3, 3)), mx.zeros((1, 4))
    bias = mx.array(0.0)
    assert mk.pick(row, row.astype(mx.bfloat16)) is None
    assert mk.pick(row, mx.zeros((2, 9))) is None
    assert mk.remember(tops, mx.zeros((9, 4), dtype=mx.float16)) is None
    assert mk.tell([tops] * 9, [memory] * 9, mx.zeros((9, 4)), mx.zeros(8), bias) is None
    assert mk.tell([tops], [memory], mx.zeros((1, 4)), mx.zeros(8), mx.array(0)) is None
    assert not host.launched
