"""Tokens to streams and streams to means, as the host build runs them, against stock MLX."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.model.target import capture, embed
from ds4chat.ops import dispatch, edge_kernels
from tests.kernels import host_build
from tests.kernels.cases import ALL_ROWS, Case, check
from tests.kernels.edge_cases import (
    KINDS,
    N_IDS,
    capture_family,
    embed_family,
    families,
    table_of,
)
from tests.kernels.gpu_check import to_device
from tests.kernels.host_dispatch import HostDispatcher

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (6, 1, 0), (1, 2, 3, 4, 5, 6))
DIMS = (64, 136, 1000, 4096)
"""Each with half of it and three: less than a block, some of one, and many."""


@pytest.fixture
def host() -> Iterator[HostDispatcher]:
    before, made = dispatch.current(), HostDispatcher()
    dispatch.use(made)
    yield made
    dispatch.use(before)


@pytest.mark.parametrize("dim", DIMS)
def test_kernels_are_close_and_ignore_other_rows(dim: int) -> None:
    others = (embed_family("bfloat16", dim, 3), capture_family(2, dim, 3))
    for family in (*(make() for make in families(dim)), *others):
        found = check(family, host_build.run, SUBSETS)
        assert found.is_close, (family.label, found)
        assert found.is_invariant, family.label


def by_stock(compute: dispatch.Built) -> mx.array:
    """What `compute` makes without kernels."""
    host = dispatch.current()
    dispatch.use(dispatch.Dispatcher(backend="reference"))
    made: mx.array = compute()
    mx.eval(made)
    dispatch.use(host)
    return made


def bits(array: mx.array) -> np.ndarray:
    return np.array(array).view(np.uint32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_rows", [1, 5, 19])
def test_streams_have_the_bits_of_stock_operations(
    host: HostDispatcher, kind: str, n_rows: int
) -> None:
    table = to_device(table_of(kind, 96)[0], kind)
    drawn = np.random.default_rng(n_rows).integers(0, N_IDS, n_rows, np.int32)
    compute = partial(embed, table, mx.array(drawn), 4)
    made = compute()
    assert host.launched == {"embed": 1}
    assert made.shape == (n_rows, 4, 96)
    np.testing.assert_array_equal(bits(made), bits(by_stock(compute)))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("dim", [256, 257])
def test_every_value_of_two_bytes_is_widened(host: HostDispatcher, kind: str, dim: int) -> None:
    every = np.resize(np.arange(1 << 16, dtype=np.uint16), (256 * dim,)).reshape(256, dim)
    table = mx.array(every).view(getattr(mx, kind))
    compute = partial(embed, table, mx.arange(256, dtype=mx.int32), 1)
    ours, theirs = bits(compute()), bits(by_stock(compute))
    assert host.launched == {"embed": 1}
    is_nan = np.isnan(theirs.view(np.float32))
    np.testing.assert_array_equal(np.isnan(ours.view(np.float32)), is_nan)
    np.testing.assert_array_equal(ours[~is_nan], theirs[~is_nan])


@pytest.mark.parametrize("dim", [64, 67])
def test_ids_outside_the_table_take_its_ends(dim: int) -> None:
    case = embed_family("bfloat16", dim).make(ALL_ROWS[:4])
    big = 2**31 - 1
    sent = (np.array([-1, -big - 1, N_IDS, big], np.int32), "int32")
    held = table_of("bfloat16", dim)[1]
    (found,) = host_build.run(
        Case(
            spec=case.spec,
            inputs=(sent, case.inputs[1]),
            n_blocks=case.n_blocks,
            outputs=case.outputs,
            exact=(),
        )
    )
    wanted = np.repeat(held[[0, 0, N_IDS - 1, N_IDS - 1], None], 4, axis=1)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("n_streams", [1, 2, 3, 4])
@pytest.mark.parametrize(("n_layers", "dim"), [(1, 96), (3, 257), (8, 64)])
def test_means_have_the_bits_of_stock_operations(
    host: HostDispatcher, n_layers: int, n_streams: int, dim: int
) -> None:
    rng = np.random.default_rng((n_layers, n_streams))
    shape = (n_layers, 5, n_streams, dim)
    sizes = 10 ** rng.uniform(-3, 3, shape)  # so that the order of a sum shows
    values = (rng.standard_normal(shape) * sizes).astype(np.float32)
    compute = partial(capture, [mx.array(layer) for layer in values])
    made = compute()
    assert host.launched == {"capture": 1}
    assert made.shape == (5, n_layers * dim)
    np.testing.assert_array_equal(bits(made), bits(by_stock(compute)))
    half = partial(capture, [mx.array(layer) for layer in values], mx.bfloat16)
    assert half().dtype == mx.bfloat16
    wide = [made.astype(mx.float32) for made in (half(), by_stock(half))]
    np.testing.assert_array_equal(bits(wide[0]), bits(wide[1]))


def test_other_arrays_are_left_to_stock_operations(host: HostDispatcher) -> None:
    table, ids, streams = mx.ones((3, 8)), mx.array([2, 0]), mx.ones((2, 4, 8))
    assert edge_kernels.embed_rows(table, ids.astype(mx.int64), 4) is None
    assert edge_kernels.embed_rows(table.astype(mx.int32), ids, 4) is None
    assert edge_kernels.capture_means([streams] * 9, mx.float32) is None
    assert edge_kernels.capture_means([streams, streams[:1]], mx.float32) is None
    half = streams.astype(mx.bfloat16)
    assert edge_kernels.capture_means([half], mx.float32) is None
    assert edge_kernels.capture_means([streams], mx.float16) is None
    assert embed(table, ids.astype(mx.int64), 4).shape == (2, 4, 8)
    assert capture([streams] * 9).shape == (2, 72)
    assert not host.launched
