"""The hyper-connection kernels, as the host build of the dialect runs them."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops import dispatch
from ds4chat.ops.hyper import HyperWeights, read_streams, write_streams
from ds4chat.ops.hyper_kernels import begin, read, write
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
