"""Router and experts: ties, extreme logits, clamps, and both layouts of the shared expert."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.ops.linear import dense, fuse
from ds4chat.ops.moe import (
    ExpertWeights,
    route_scores,
    route_weights,
    run_experts,
    top_experts,
)
from tests.reference.maths import swiglu
from tests.unit.ops.exact import double, normal, single

Single = NDArray[np.float32]
Double = NDArray[np.float64]
DIM, INNER, N, LIMIT = 16, 12, 5, 0.8


@pytest.mark.parametrize("n_experts", [4, 8, 64, 256, 384])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_router_ties_go_to_the_lowest_id(n_experts: int, k: int) -> None:
    rng = np.random.default_rng(n_experts + k)
    scores = rng.integers(0, 4, (8, n_experts)).astype(np.float32)
    bias = rng.integers(-1, 2, n_experts).astype(np.float32)
    found = np.array(top_experts(single(scores), single(bias), k)).tolist()
    for row, ids in zip(scores + bias, found, strict=True):
        assert ids == sorted(range(n_experts), key=lambda e: (-row[e], e))[:k]


def test_all_experts_tied() -> None:
    found = top_experts(mx.zeros((3, 256)), mx.zeros((256,)), 6)
    assert np.array(found).tolist() == [list(range(6))] * 3


def test_bias_selects_but_does_not_weigh() -> None:
    scores = single(np.array([[1.0, 2.0, 3.0, 4.0]]))
    chosen = top_experts(scores, single(np.array([9.0, 0.0, 0.0, 0.0])), 2)
    assert np.array(chosen).tolist() == [[0, 3]]
    weights = double(route_weights(scores, chosen, 2.5))
    assert np.allclose(weights, [[0.2 * 2.5, 0.8 * 2.5]])


def test_scores_over_the_whole_range() -> None:
    z = np.array([[-80.0, -20.0, -1.0, 0.0, 1e-3, 5.0, 80.0, 1e4, 1e30]])
    wanted = np.sqrt(np.logaddexp(0.0, z))
    assert np.allclose(double(route_scores(single(z))), wanted, rtol=1e-6, atol=0)


def doubles(values: Single) -> Double:
    return values.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Experts:
    """N routed experts and a shared one, and both layouts of them."""

    gate: NDArray[np.float32]
    up: NDArray[np.float32]
    down: NDArray[np.float32]
    shared: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]

    def wanted(self, x: Single, chosen: list[int], weights: list[float]) -> Double:
        """The reference's sum for one row."""
        row, (gate, up, down) = x.astype(np.float64), self.shared
        total = swiglu(row, doubles(gate), doubles(up), doubles(down), LIMIT)
        for e, weight in zip(chosen, weights, strict=True):
            parts = doubles(self.gate[e]), doubles(self.up[e]), doubles(self.down[e])
            total = total + weight * swiglu(row, *parts, LIMIT)
        return total

    def stacked(self) -> ExpertWeights:
        """The CPU layout: gate and up in one, the shared expert as the last."""
        both = np.concatenate([self.gate, self.up], axis=1)
        own = np.concatenate([self.shared[0], self.shared[1]], axis=0)
        return ExpertWeights(
            gate_up=(dense(np.concatenate([both, own[None]]), mx.float32),),
            down=dense(np.concatenate([self.down, self.shared[2][None]]), mx.float32),
            shared_gate_up=None,
            shared_down=None,
            n_routed=N,
            limit=LIMIT,
        )

    def apart(self) -> ExpertWeights:
        """The layout for blocks: four products."""
        return ExpertWeights(
            gate_up=(dense(self.gate, mx.float32), dense(self.up, mx.float32)),
            down=dense(self.down, mx.float32),
            shared_gate_up=fuse([dense(m, mx.float32) for m in self.shared[:2]]),
            shared_down=dense(self.shared[2], mx.float32),
            n_routed=N,
            limit=LIMIT,
        )


@pytest.fixture
def experts() -> Experts:
    return Experts(
        gate=normal(1, N, INNER, DIM),
        up=normal(2, N, INNER, DIM),
        down=normal(3, N, DIM, INNER),
        shared=(normal(4, INNER, DIM), normal(5, INNER, DIM), normal(6, DIM, INNER)),
    )


@pytest.mark.parametrize("layout", ["stacked", "apart"])
def test_experts(experts: Experts, layout: str) -> None:
    """Inputs of size one against a limit of 0.8: every clamp acts on many channels."""
    x, rng = normal(7, 6, DIM), np.random.default_rng(8)
    chosen = np.stack([rng.permutation(N)[:3] for _ in range(6)]).astype(np.int32)
    weights = rng.random((6, 3)).astype(np.float32)
    made = getattr(experts, layout)()
    found = double(run_experts(single(x), mx.array(chosen), single(weights), made))
    for row in range(6):
        wanted = experts.wanted(x[row], chosen[row].tolist(), weights[row].tolist())
        assert np.allclose(found[row], wanted, rtol=1e-4, atol=1e-4)


def test_the_gate_has_no_lower_clamp(experts: Experts) -> None:
    """silu(-6) differs from silu(-0.8) by far."""
    gate = np.full((N, INNER, DIM), -6.0 / DIM, np.float32)
    ones = Experts(gate, np.abs(experts.up), experts.down, experts.shared)
    x = np.ones((1, DIM), np.float32)
    found = double(
        run_experts(single(x), mx.array([[2]]), single(np.ones((1, 1))), ones.apart())
    )
    assert np.allclose(found[0], ones.wanted(x[0], [2], [1.0]), rtol=1e-4, atol=1e-4)
