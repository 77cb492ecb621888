"""The expert kernels, as the host build of the dialect runs them."""

from __future__ import annotations

import dataclasses

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops import moe, moe_kernels, qmatmul
from tests.kernels import host_build
from tests.kernels.cases import ALL_ROWS, Case, check
from tests.kernels.moe_cases import down_family, gate_up_family, shared_family

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
SUBSETS = ((0,), (7,), (2, 5), (6, 1, 0), (1, 2, 3, 4, 5, 6))
FORMATS = ("IQ2_XXS", "Q2_K", "Q8_0", "MXFP4")


def some(quick: str, n_in: int) -> list[object]:
    """All formats at two row lengths; all but one of them are slow to compile."""
    return [
        pytest.param(name, k, marks=() if (name, k) == (quick, n_in) else pytest.mark.slow)
        for name in FORMATS
        for k in (256, n_in)
    ]


@pytest.mark.parametrize("backend", ["cuda", "metal", "host"])
@pytest.mark.parametrize("name", tuple(qmatmul.STAGE_VALUES))
def test_walks_fit_in_shared_memory(name: str, backend: str) -> None:
    room = qmatmul.SHARED_BYTES[backend]
    for n_picks in (4, 6, moe_kernels.MAX_PICKS):
        walk = moe_kernels.down_walk(name, n_picks, backend)
        assert moe_kernels.down_bytes(walk, name, n_picks) <= room
    table_bytes = 4 * 384
    assert moe_kernels.gate_up_walk(name, backend).shared_bytes(name) + table_bytes <= room
    for n_in in (4096, 2048, 256):
        walk = moe_kernels.shared_walk(name, n_in, backend)
        assert walk.shared_bytes(name) + table_bytes <= room
    for n_in, n_out in ((4096, 16384), (4096, 512), (1024, 32768), (256, 16)):
        walk = qmatmul.walk_of(name, n_in, n_out, backend)
        assert walk.shared_bytes(name) + table_bytes <= room


@pytest.mark.parametrize(("name", "n_in"), some("IQ2_XXS", 768))
def test_gate_up(name: str, n_in: int) -> None:
    found = check(
        gate_up_family("host", name, n_in, 24, 10, "float32"), host_build.run, SUBSETS
    )
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.parametrize(("name", "n_in"), some("Q2_K", 1536))
def test_down(name: str, n_in: int) -> None:
    found = check(down_family("host", name, n_in, 24, 10, "float32"), host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.parametrize(("split", "buffers"), [(1, 2), (4, 3)])
def test_the_parts_of_an_expert(split: int, buffers: int) -> None:
    walk = qmatmul.Walk(simdgroups=3, split=split, buffers=buffers)  # six stages: three parts
    family = down_family("host", "Q2_K", 1536, 21, 10, "bfloat16", walk=walk)
    found = check(family, host_build.run, ((0,), (6, 1), (2, 4, 5), (1, 2, 3, 4, 5, 6)))
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.parametrize(
    ("name", "n_in"),
    [("Q8_0", 2176), *(pytest.param(n, 4096, marks=pytest.mark.slow) for n in FORMATS)],
)
def test_the_shared_expert(name: str, n_in: int) -> None:
    found = check(shared_family("host", name, n_in, 21, "float32"), host_build.run, SUBSETS)
    assert found.is_close, found
    assert found.is_invariant


def test_four_simdgroups_share_a_projection_of_the_shared_expert() -> None:
    for n_in, split in ((4096, 4), (2048, 4), (512, 2), (128, 1)):
        walk = moe_kernels.shared_walk("Q8_0", n_in, "cuda")
        assert walk == qmatmul.Walk(simdgroups=max(4, 2 * split), split=split, columns=8)


def test_the_shared_expert_has_the_values_of_a_routed_one_of_its_walk() -> None:
    walk = moe_kernels.shared_walk("Q8_0", 2176, "host")
    case = shared_family("host", "Q8_0", 2176, 21, "float32").make((4, 2, 7))
    (shared,) = host_build.run(case)
    (x, _), (gate, _), (up, _) = case.inputs
    picks = np.full((3, 2), -1, np.int32)
    picks[:, 1] = 0
    spec = moe_kernels.gate_up_spec(
        "Q8_0", 2176, "float32", 2, 10.0, backend="host", is_bf16_out=False, walk=walk
    )
    routed = dataclasses.replace(
        case,
        spec=spec,
        inputs=((x, "float32"), (gate[None], "uint8"), (up[None], "uint8"), (picks, "int32")),
        n_blocks=moe_kernels.gate_up_blocks(spec, 6, 21),
        outputs=(((3, 2, 21), "float32"),),
    )
    np.testing.assert_array_equal(host_build.run(routed)[0][:, 1], shared)


def test_what_is_added_to_the_experts_is_added_last() -> None:
    alone = down_family("host", "Q2_K", 256, 24, 10, "float32").make(ALL_ROWS)
    case = down_family("host", "Q2_K", 256, 24, 10, "float32", has_more=True).make(ALL_ROWS)
    more = case.inputs[-1][0]
    (total,), (routed,) = host_build.run(case), host_build.run(alone)
    np.testing.assert_array_equal(total, routed + more)
    found = check(
        down_family("host", "Q2_K", 256, 24, 10, "float32", has_more=True),
        host_build.run,
        SUBSETS,
    )
    assert found.is_close, found
    assert found.is_invariant


@pytest.mark.slow
def test_half_precision() -> None:
    for family in (gate_up_family, down_family):
        found = check(
            family("host", "Q8_0", 256, 16, 8, "bfloat16"), host_build.run, SUBSETS[:2]
        )
        assert found.is_close, found
        assert found.is_invariant


def test_a_pick_that_is_no_expert_adds_nothing() -> None:
    case = down_family("host", "Q8_0", 256, 24, 10, "float32").make(ALL_ROWS)
    (whole,) = host_build.run(case)
    picks, weights = case.inputs[2][0].copy(), case.inputs[3][0].copy()
    picks[2, 3], picks[4, 0], weights[2, 3], weights[4, 0] = -1, 10, 0.5, 0.5
    zeroed = case.inputs[3][0].copy()
    zeroed[2, 3] = zeroed[4, 0] = 0.0
    bad = (*case.inputs[:2], (picks, "int32"), (weights, "float32"))
    none = (*case.inputs[:3], (zeroed, "float32"))
    (out,) = host_build.run(dataclasses.replace(case, inputs=bad))
    (expected,) = host_build.run(dataclasses.replace(case, inputs=none))
    np.testing.assert_array_equal(out, expected)
    assert not np.array_equal(out, whole)


def route(logits: np.ndarray, k: int, **more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Picks and weights by the kernel; `bias`, or `table` and `ids`."""
    n_rows, n_experts = logits.shape
    kinds = {"bias": "float32", "table": "int32", "ids": "int32"}
    case = Case(
        spec=moe_kernels.route_spec(n_experts, k, 1.5, has_table="table" in more),
        inputs=((logits, "float32"), *((a, kinds[name]) for name, a in more.items())),
        n_blocks=n_rows,
        outputs=(((n_rows, k), "int32"), ((n_rows, k), "float32")),
        exact=(),
    )
    picks, weights = host_build.run(case)
    return picks, weights


def stock_route(logits: np.ndarray, bias: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = moe.route_scores(mx.array(logits))
    picks = moe.top_experts(scores, mx.array(bias), k)
    return np.array(picks), np.array(moe.route_weights(scores, picks, 1.5))


@pytest.mark.parametrize("n_experts", [8, 72])
def test_routes_are_those_of_stock_operations(n_experts: int) -> None:
    rng = np.random.default_rng(0)
    logits = (8 * rng.standard_normal((6, n_experts))).astype(np.float32)
    logits[0] = 1.0  # all tied: the lowest ids
    logits[1, :4] = 50.0
    logits[2] -= 60.0  # scores near 1e-13
    bias = np.where(np.arange(n_experts) % 3, 0, rng.uniform(0, 1, n_experts))
    bias = (0 * bias if n_experts == 8 else bias).astype(np.float32)
    picks, weights = route(logits, 6, bias=bias)
    wanted, shares = stock_route(logits, bias, 6)
    np.testing.assert_array_equal(picks, wanted)
    np.testing.assert_allclose(weights, shares, rtol=2e-5)
    for i in range(6):
        alone = route(logits[i : i + 1], 6, bias=bias)
        np.testing.assert_array_equal(alone[0], picks[i : i + 1])
        np.testing.assert_array_equal(alone[1], weights[i : i + 1])


def test_routes_of_a_table_and_of_no_numbers() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 8)).astype(np.float32)
    table = np.array([[1, 2], [7, 0], [3, 9]], np.int32)
    picks, weights = route(logits, 2, table=table, ids=np.array([1, 2], np.int32))
    np.testing.assert_array_equal(picks, table[1:])
    scores = np.sqrt(np.log1p(np.exp(logits[0].astype(np.float64))))[[7, 0]]
    np.testing.assert_allclose(weights[0], 1.5 * scores / scores.sum(), rtol=1e-6)
    assert np.isnan(weights[1]).all()  # there is no expert 9
    logits[1] = np.nan
    logits[0, 3] = np.nan
    picks, weights = route(logits, 6, bias=np.zeros(8, np.float32))
    assert 3 not in picks[0]
    assert np.isfinite(weights[0]).all()
    assert len(set(picks[1])) == 6
    assert np.isnan(weights[1]).all()


def test_an_expert_picked_twice_by_a_row_counts_twice() -> None:
    case = down_family("host", "Q8_0", 256, 24, 10, "float32").make((0,))
    hidden, picks = case.inputs[0][0].copy(), case.inputs[2][0].copy()
    picks[0, 5] = picks[0, 0]
    hidden[0, 5] = hidden[0, 0]
    weights = np.zeros_like(case.inputs[3][0])
    weights[0, 0], weights[0, 5] = 0.25, 0.5
    inputs = ((hidden, "float32"), case.inputs[1], (picks, "int32"), (weights, "float32"))
    (twice,) = host_build.run(dataclasses.replace(case, inputs=inputs))
    weights[0, 0], weights[0, 5] = 0.75, 0.0
    (once,) = host_build.run(dataclasses.replace(case, inputs=inputs))
    np.testing.assert_allclose(twice, once, rtol=1e-5, atol=1e-5)
