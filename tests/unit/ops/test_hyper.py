"""Hyper-connections against the reference, and the direction of the Sinkhorn rounds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.ops.hyper import (
    HyperWeights,
    Mix,
    collapse_streams,
    expand_scale,
    read_streams,
    write_streams,
)
from tests.unit.ops.exact import double, normal, single

DIM = 24


def reference(
    streams: NDArray[np.float64], raw: dict[str, NDArray[np.float64]], rounds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Branch input, post and mixing matrix of one token, in the order of the description."""
    m, eps = len(streams), 1e-6
    flat = streams.reshape(-1)
    z = raw["fn"] @ (flat / np.sqrt((flat**2).mean() + 1e-6))
    parts = [z[:m], z[m : 2 * m], z[2 * m :]]
    bases = [raw["base"][:m], raw["base"][m : 2 * m], raw["base"][2 * m :]]
    z_pre, z_post, z_mix = (
        p * s + b for p, s, b in zip(parts, raw["scale"], bases, strict=True)
    )
    c = np.exp(z_mix.reshape(m, m))
    c = c / c.sum(axis=1, keepdims=True) + eps
    c = c / (c.sum(axis=0) + eps)
    for _ in range(rounds - 1):
        c = c / (c.sum(axis=1, keepdims=True) + eps)
        c = c / (c.sum(axis=0) + eps)
    pre = 1 / (1 + np.exp(-z_pre)) + eps
    return pre @ streams, 2 / (1 + np.exp(-z_post)), c


def make(
    m: int, rounds: int, seed: int, gain: float = 0.3
) -> tuple[dict[str, NDArray[np.float64]], HyperWeights]:
    width = m * (m + 2)
    raw = {
        "fn": normal(seed, width, m * DIM).astype(np.float64) * gain,
        "base": normal(seed + 1, width).astype(np.float64) * gain * 3,
        "scale": np.array([0.5, 1.25, 2.0]),
    }
    weights = HyperWeights(
        fn=single(raw["fn"].T),
        scale=expand_scale(single(raw["scale"]), m),
        base=single(raw["base"]),
        n_streams=m,
        rounds=rounds,
        hc_eps=1e-6,
        rms_eps=1e-6,
    )
    return raw, weights


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("rounds", [1, 2, 4, 20])
def test_reading(m: int, rounds: int) -> None:
    raw, weights = make(m, rounds, seed=10 * m)
    streams = normal(1, 6, m, DIM) * 3
    mixed, mix = read_streams(single(streams), weights)
    for row in range(6):
        x, post, carry = reference(streams[row].astype(np.float64), raw, rounds)
        assert np.allclose(double(mixed)[row], x, rtol=1e-5, atol=1e-5)
        assert np.allclose(double(mix.post)[row], post, rtol=1e-5)
        assert np.allclose(double(mix.carry)[row], carry, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_last_step_normalises_columns(rounds: int) -> None:
    """Sums over the first index are one, those over the second are not yet."""
    _, weights = make(4, rounds, seed=3, gain=0.05)
    _, mix = read_streams(single(normal(2, 5, 4, DIM) * 3), weights)
    carry = double(mix.carry)
    assert np.abs(carry.sum(axis=1) - 1).max() < 1e-5
    assert np.abs(carry.sum(axis=2) - 1).max() > 1e-3


def test_twenty_rounds_are_doubly_stochastic() -> None:
    _, weights = make(4, 20, seed=4, gain=0.05)
    _, mix = read_streams(single(normal(2, 5, 4, DIM)), weights)
    for axis in (1, 2):
        assert np.abs(double(mix.carry).sum(axis=axis) - 1).max() < 1e-3


def test_writing_sums_over_the_first_index() -> None:
    streams, out = normal(5, 3, 4, DIM), normal(6, 3, DIM)
    post, carry = normal(7, 3, 4), normal(8, 3, 4, 4)
    found = double(
        write_streams(single(streams), Mix(post=single(post), carry=single(carry)), single(out))
    )
    for row in range(3):
        for k in range(4):
            wanted = post[row, k] * out[row]
            for j in range(4):
                wanted = wanted + carry[row, j, k] * streams[row, j]
            assert np.allclose(found[row, k], wanted, rtol=1e-5, atol=1e-5)


def test_collapsing_for_the_head() -> None:
    fn, base, scale = normal(9, 4, 4 * DIM), normal(10, 4), 0.7
    weights = HyperWeights(
        fn=single(fn.T),
        scale=single(np.array([scale])),
        base=single(base),
        n_streams=4,
        rounds=20,
        hc_eps=1e-2,
        rms_eps=1e-1,
    )
    streams = normal(11, 3, 4, DIM) * 0.2
    found = double(collapse_streams(single(streams), weights))
    for row in range(3):
        flat = streams[row].reshape(-1).astype(np.float64)
        z = fn @ (flat / np.sqrt((flat**2).mean() + 1e-1)) * scale + base
        pre = 1 / (1 + np.exp(-z)) + 1e-2
        assert np.allclose(found[row], pre @ streams[row], rtol=1e-5, atol=1e-5)


def test_extreme_logits_stay_finite() -> None:
    raw, weights = make(4, 20, seed=5)
    del raw
    _, mix = read_streams(single(normal(12, 2, 4, DIM) * 1e18), weights)
    assert np.isfinite(double(mix.carry)).all()
    _, mix = read_streams(single(np.zeros((1, 4, DIM))), weights)
    assert np.isfinite(double(mix.carry)).all()
