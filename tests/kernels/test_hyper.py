"""The hyper-connection kernels, as the host build of the dialect runs them."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops import dispatch
from ds4chat.ops.hyper import HyperWeights, Mix, read_streams, write_streams
from ds4chat.ops.hyper_kernels import Flow, begin, read, write
from ds4chat.ops.norms import rms_norm
from tests.kernels import host_build, hyper_cases
from tests.kernels.cases import ALL_ROWS, Family, check
from tests.kernels.host_dispatch import HostDispatcher

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (6, 1, 0), (1, 2, 3, 4, 5, 6))


@pytest.mark.parametrize("dim", [96, 544])
@pytest.mark.parametrize("at", range(6))
def test_kernels_are_close_and_ignore_other_rows(dim: int, at: int) -> None:
    family: Family = list(hyper_cases.families(dim))[at]()
    found = check(family, host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant


def test_columns_of_the_carry_are_balanced_last() -> None:
    family = hyper_cases.pre_family(96, 24, "float32", is_normed=True)
    _, _, carry = host_build.run(family.make(ALL_ROWS))
    np.testing.assert_allclose(carry.sum(axis=1), 1.0, atol=1e-5)
    assert np.abs(carry.sum(axis=2) - 1.0).max() > 1e-4


def test_a_prompts_rows_take_the_same_kernels() -> None:
    n_rows, dim, rng = 19, 96, np.random.default_rng(3)

    def drawn(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape).astype(np.float32))

    w = HyperWeights(
        fn=drawn(4 * dim, 24) * dim**-0.5,
        scale=drawn(24),
        base=drawn(24),
        n_streams=4,
        rounds=20,
        hc_eps=1e-6,
        rms_eps=1e-6,
    )
    streams, norm, out = drawn(n_rows, 4, dim), drawn(dim), drawn(n_rows, dim)
    mixed, mix = read_streams(streams, w)
    wanted = [
        rms_norm(mixed, norm, 1e-6),
        mix.post,
        mix.carry,
        write_streams(streams, mix, out),
    ]
    before, host = dispatch.current(), HostDispatcher()
    dispatch.use(host)
    try:
        x, made = read(begin(streams, w), w, norm, mx.float32)
        found = [x, made.post, made.carry, write(begin(streams, w), made, out, w).streams]
    finally:
        dispatch.use(before)
    assert host.launched == {"hyper_post_24": 3, "hyper_pre_24": 1}
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_out", [24, 4])
def test_few_rows_have_the_bits_that_they_have_among_many(n_out: int) -> None:
    n_rows, dim, rng = 19, 96, np.random.default_rng(5)
    fn = mx.array(rng.standard_normal((4 * dim, n_out)).astype(np.float32))
    reader = HyperWeights(
        fn=fn, scale=fn[0], base=fn[1], n_streams=4, rounds=1, hc_eps=1e-6, rms_eps=1e-6
    )
    shapes = [(n_rows, 4, dim), (n_rows, dim), (n_rows, 4), (n_rows, 4, 4)]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]

    def written(rows: slice) -> list[np.ndarray]:
        streams, out, post, carry = (mx.array(a[rows]) for a in arrays)
        flow = write(Flow(streams=streams), Mix(post=post, carry=carry), out, reader)
        return [np.array(a) for a in flow.arrays()]

    before = dispatch.current()
    dispatch.use(HostDispatcher())
    try:
        streams, partials = written(slice(None))
        for first, n in ((0, 1), (3, 8), (12, 7)):
            few = written(slice(first, first + n))
            np.testing.assert_array_equal(few[0], streams[first : first + n])
            np.testing.assert_array_equal(few[1], partials[:, first : first + n])
    finally:
        dispatch.use(before)
