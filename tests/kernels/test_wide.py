"""Products of many rows from blocks, and what runs beside them, on the kernels' host build."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.formats.quants.base import decode, format_named
from ds4chat.ops import blocks as blocks_module
from ds4chat.ops import dispatch, wide_kernels
from ds4chat.ops.blocks import Blocks
from ds4chat.ops.linear import Fused
from ds4chat.ops.moe import ExpertWeights, run_experts
from ds4chat.ops.moe_kernels import ExpertBlocks
from ds4chat.ops.unpack_kernels import STAGE_VALUES
from tests.kernels import host_build, wide_cases
from tests.kernels.blocks import nmse, random_blocks
from tests.kernels.cases import check
from tests.kernels.host_dispatch import HostDispatcher

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
LIMIT = 10.0
SLOW = [
    n if n in ("Q8_0", "Q2_K") else pytest.param(n, marks=pytest.mark.slow)
    for n in STAGE_VALUES
]
Floats = NDArray[np.float32]


@pytest.fixture
def host() -> Iterator[HostDispatcher]:
    before = dispatch.current()
    made = HostDispatcher()
    dispatch.use(made)
    yield made
    dispatch.use(before)


def half(values: Floats) -> tuple[mx.array, Floats]:
    """Values as bf16, and what they then are."""
    made = mx.array(values).astype(mx.bfloat16)
    return made, np.array(made.astype(mx.float32))


def weight(name: str, *shape: int) -> tuple[Blocks, Floats]:
    """A weight of random blocks, and its values as bf16 holds them."""
    quant = format_named(name)
    rng = np.random.default_rng(shape)
    raw = random_blocks(rng, name, int(np.prod(shape[:-1])), shape[-1])
    values = half(decode(quant, raw, shape))[1]
    return Blocks(raw=mx.array(raw.reshape(*shape[:-1], -1)), quant=quant), values


def drawn(*shape: int) -> Floats:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("n_rows", [9, 70])
def test_products_of_some_rows_are_made_from_blocks(
    name: str, n_rows: int, host: HostDispatcher
) -> None:
    n_in = 3 * STAGE_VALUES[name] - format_named(name).block_values
    w, values = weight(name, 149, n_in)
    x, held = half(drawn(n_rows, n_in))
    exact = held.astype(np.float64) @ values.T.astype(np.float64)
    found = wide_kernels.product(x, w.raw, w.quant, mx.float32)
    assert found is not None
    assert nmse(np.array(found), exact) < 1e-12
    assert host.launched == {f"wide_{name.lower()}": 1, "pack_rows": 1}
    assert nmse(np.array(w(x).astype(mx.float32)), exact) < 4e-6
    assert host.launched[f"wide_{name.lower()}"] == (2 if n_rows == 9 else 1)


def test_a_rows_bits_ignore_the_rows_beside_it(host: HostDispatcher) -> None:
    w, _ = weight("Q8_0", 40, 512)
    x, _ = half(drawn(70, 512))
    whole = wide_kernels.product(x, w.raw, w.quant, mx.float32)
    some = wide_kernels.product(x[60:], w.raw, w.quant, mx.float32)
    assert whole is not None
    assert some is not None
    np.testing.assert_array_equal(np.array(some), np.array(whole)[60:])


@pytest.mark.parametrize("name", [*SLOW, "BF16"])
def test_many_rows_unpack_the_weight_first(
    name: str, host: HostDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "_WIDE_ROWS", 8)
    monkeypatch.setattr(blocks_module, "_HALF_VALUES", 512 * 32)  # the last tile is short
    w, values = weight(name, 72, 512)
    x, held = half(drawn(20, 512))
    found = w(x)
    assert found.dtype == mx.bfloat16
    assert nmse(np.array(found.astype(mx.float32)), held.astype(np.float64) @ values.T) < 8e-6
    assert host.launched == ({} if name == "BF16" else {f"unpack_{name.lower()}": 3})


def test_islands_keep_their_values(host: HostDispatcher) -> None:
    w, _ = weight("Q8_0", 24, 512)
    island = Blocks(raw=w.raw, quant=w.quant, out_dtype=mx.float32)
    x, held = half(drawn(20, 512))
    values = decode(w.quant, np.array(w.raw), (24, 512)).astype(np.float64)
    wanted = held @ values.T
    assert nmse(np.array(island(x)), wanted) < 1e-10
    assert not host.launched


def test_groups_of_many_rows(host: HostDispatcher) -> None:
    w, values = weight("Q8_0", 48, 512)
    x, held = half(drawn(20, 3, 512))
    wanted = np.einsum("lgi,gri->lgr", held.astype(np.float64), values.reshape(3, 16, 512))
    found = w.grouped(x)
    assert nmse(np.array(found.astype(mx.float32)), wanted) < 8e-6
    assert host.launched == {"unpack_q8_0": 1}


def _activated(gate: Floats, up: Floats) -> Floats:
    gate, up = np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT)
    made: Floats = gate / (1 + np.exp(-gate)) * up
    return made


def _picks(n_rows: int, n_experts: int) -> NDArray[np.int32]:
    """Three of the experts for each row; most rows want the same, the last is never wanted."""
    rng = np.random.default_rng(9)
    rows = [
        rng.permutation(n_experts - 1)[:3] if i % 4 == 0 else [2, 0, 5] for i in range(n_rows)
    ]
    return np.array(rows, np.int32)


@pytest.mark.parametrize(
    ("gated", "last"),
    [("IQ2_XXS", "Q2_K"), pytest.param("MXFP4", "MXFP4", marks=pytest.mark.slow)],
)
def test_experts_of_many_rows(gated: str, last: str, host: HostDispatcher) -> None:
    n_experts, n_rows, dim, inner = 9, 100, 512, 256
    gate, gate_values = weight(gated, n_experts, inner, dim)
    up, up_values = weight(gated, n_experts, inner, dim)
    down, down_values = weight(last, n_experts, dim, inner)
    shared = [weight("Q8_0", *shape) for shape in ((inner, dim), (inner, dim), (dim, inner))]
    w = ExpertWeights(
        gate_up=(gate, up),
        down=down,
        shared_gate_up=Fused(parts=(shared[0][0], shared[1][0]), splits=()),
        shared_down=shared[2][0],
        n_routed=n_experts,
        limit=LIMIT,
    )
    x, held = half(drawn(n_rows, dim) * np.float32(4 / gate_values.std() / dim**0.5))
    picks = _picks(n_rows, n_experts)
    weights = np.random.default_rng(2).uniform(0.1, 0.5, picks.shape).astype(np.float32)
    wanted = np.zeros((n_rows, dim))
    for row in range(n_rows):
        for pick, share in zip(picks[row], weights[row], strict=True):
            hidden = _activated(gate_values[pick] @ held[row], up_values[pick] @ held[row])
            wanted[row] += share * (down_values[pick] @ hidden)
        hidden = _activated(shared[0][1] @ held[row], shared[1][1] @ held[row])
        wanted[row] += shared[2][1] @ hidden
    found = run_experts(x, mx.array(picks), mx.array(weights), w)
    assert found.dtype == mx.float32
    assert nmse(np.array(found), wanted) < 3e-5  # hidden values are rounded to bf16
    assert {"moe_plan", "moe_sum", f"wide_gated_{gated.lower()}"} <= set(host.launched)


def test_a_pick_that_is_no_expert_adds_nothing(host: HostDispatcher) -> None:
    stacks = [weight("Q2_K", 4, *shape) for shape in ((256, 256), (256, 256), (256, 256))]
    gate, up, down = (ExpertBlocks(blocks=w.raw, quant=w.quant, n_in=256) for w, _ in stacks)
    x, _ = half(drawn(12, 256))
    picks = np.array([[0, 3]] * 12, np.int32)
    weights = mx.ones((12, 2))
    clean = wide_kernels.experts(x, mx.array(picks), weights, gate, up, down, LIMIT)
    picks[5] = (-1, 4)
    some = wide_kernels.experts(x, mx.array(picks), weights, gate, up, down, LIMIT)
    assert clean is not None
    assert some is not None
    keep = np.arange(12) != 5
    np.testing.assert_array_equal(np.array(some)[keep], np.array(clean)[keep])
    assert not np.array(some)[5].any()


@pytest.mark.slow
@pytest.mark.parametrize("at", range(9))
def test_what_a_gpu_is_checked_with(at: int) -> None:
    family = list(wide_cases.families("host"))[at]()
    found = check(family, host_build.run, ((0,), (7,), (6, 1, 0)))
    assert found.is_close, found
    assert found.is_invariant
