"""Weights multiplied from their blocks are the file's values, one for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from ds4chat.formats.quants.base import format_named
from ds4chat.ops.blocks import Blocks
from ds4chat.ops.linear import Packed, dense, fuse, pack_mxfp4, pack_q8_0
from tests.unit.ops.exact import bits, double, normal, single

Bytes = NDArray[np.uint8]


def q8_0_blocks(seed: int, n: int) -> Bytes:
    """Every code, and scales from the smallest half to the largest, zero and negative."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(0, 31, n).astype(np.uint16) << 10
    halves = exponents | rng.integers(0, 1024, n).astype(np.uint16)
    halves |= (rng.integers(0, 2, n) << 15).astype(np.uint16)
    halves[:3] = [0, 1, 0x7BFF]  # zero, the smallest half, the largest
    codes = rng.integers(0, 256, (n, 32)).astype(np.uint8)
    codes[:8] = np.arange(256).reshape(8, 32)
    return np.concatenate([halves.view(np.uint8).reshape(n, 2), codes], axis=1)


def mxfp4_blocks(seed: int, n: int) -> Bytes:
    """Every code, and every exponent whose values are normal floats."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(2, 253, (n, 1))
    exponents[:2] = [[2], [252]]
    codes = rng.integers(0, 256, (n, 16))
    codes[:16] = np.arange(256).reshape(16, 16)
    return np.concatenate([exponents, codes], axis=1).astype(np.uint8)


Pack = Callable[[Bytes, tuple[int, ...]], Packed]
KINDS = [
    pytest.param(Type.Q8_0, q8_0_blocks, pack_q8_0, id="q8_0"),
    pytest.param(Type.MXFP4, mxfp4_blocks, pack_mxfp4, id="mxfp4"),
]


def values_of(blocks: Bytes, kind: Type, shape: tuple[int, ...]) -> NDArray[np.float32]:
    rows: Any = blocks.reshape(-1, shape[-1] // 32 * blocks.shape[1])
    values: NDArray[np.float32] = gguf.quants.dequantize(rows, kind)
    return values.reshape(shape)


@pytest.mark.parametrize(("kind", "make", "pack"), KINDS)
def test_one_hot_inputs_read_every_value(
    kind: Type, make: Callable[[int, int], Bytes], pack: Pack
) -> None:
    shape = (24, 96)
    blocks = make(1, 24 * 3)
    packed = pack(blocks, shape)
    assert packed.n_out == 24
    found = np.array(packed(mx.eye(96))).T
    assert np.array_equal(found, values_of(blocks, kind, shape))


@pytest.mark.parametrize(("kind", "make", "pack"), KINDS)
def test_one_hot_inputs_read_every_expert(
    kind: Type, make: Callable[[int, int], Bytes], pack: Pack
) -> None:
    shape = (3, 8, 64)
    blocks = make(2, 3 * 8 * 2)
    packed, values = pack(blocks, shape), values_of(blocks, kind, shape)
    rows = mx.eye(64)[:, None, None, :]
    for expert in range(3):
        ids = mx.full((64, 1), expert, dtype=mx.int32)
        found = np.array(packed.expert(rows, ids)).reshape(64, 8).T
        assert np.array_equal(found, values[expert])


@pytest.mark.parametrize(("kind", "make", "pack"), KINDS)
def test_products(kind: Type, make: Callable[[int, int], Bytes], pack: Pack) -> None:
    shape = (16, 128)
    blocks = make(3, 16 * 4)
    blocks[:, : blocks.shape[1] - (32 if kind == Type.Q8_0 else 16)] = (
        [0, 0x3C] if kind == Type.Q8_0 else [127]
    )
    x = normal(4, 5, 128)
    wanted = x.astype(np.float64) @ values_of(blocks, kind, shape).T.astype(np.float64)
    scale = np.abs(wanted).max()
    assert np.allclose(
        double(pack(blocks, shape)(single(x))), wanted, rtol=0, atol=1e-5 * scale
    )


def test_dense_is_stored_for_the_other_order() -> None:
    w, x = normal(5, 7, 12), normal(6, 4, 12)
    made = dense(w, mx.float32)
    assert made.n_out == 7
    wanted = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.allclose(double(made(single(x))), wanted, rtol=1e-5, atol=1e-5)


def test_dense_experts_take_one_input_or_one_each() -> None:
    w, x = normal(7, 4, 6, 12), normal(8, 5, 12)
    ids = np.random.default_rng(9).integers(0, 4, (5, 2)).astype(np.int32)
    made = dense(w, mx.float32)
    found = double(made.expert(single(x)[:, None, None, :], mx.array(ids)))
    each = normal(10, 5, 2, 1, 12)
    found_each = double(made.expert(single(each), mx.array(ids)))
    for row in range(5):
        for slot in range(2):
            expert = w[ids[row, slot]]
            assert np.allclose(found[row, slot, 0], expert @ x[row], rtol=1e-4, atol=1e-5)
            wanted = expert @ each[row, slot, 0]
            assert np.allclose(found_each[row, slot, 0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_one_type", [True, False])
def test_fused_products_stand_in_order(is_one_type: bool) -> None:
    weights, x = [normal(i, n, 12) for i, n in ((11, 3), (12, 8), (13, 1))], normal(14, 4, 12)
    types = [mx.float32] * 3 if is_one_type else [mx.float32, mx.float16, mx.float32]
    made = fuse([dense(w, t) for w, t in zip(weights, types, strict=True)])
    assert len(made.arrays()) == (1 if is_one_type else 3)
    for w, found in zip(weights, made(single(x)), strict=True):
        assert found.shape == (4, len(w))
        assert np.allclose(double(found), x @ w.T, rtol=1e-2, atol=2e-2)


def test_neighbouring_islands_stand_in_one_weight() -> None:
    rng = np.random.default_rng(11)

    def part(n_out: int, kind: type[np.floating[Any]], dtype: mx.Dtype | None) -> Blocks:
        raw = mx.array(rng.standard_normal((n_out, 24)).astype(kind).view(np.uint8))
        quant = format_named("F16" if kind is np.float16 else "F32")
        return Blocks(raw=raw, quant=quant, out_dtype=dtype)

    parts = [
        part(5, np.float16, None),
        *(part(n, np.float16, mx.float32) for n in (7, 3, 4)),
        part(6, np.float32, mx.float32),
    ]
    x = mx.array(rng.standard_normal((2, 24)).astype(np.float32))
    made = fuse(parts)
    assert [p.n_out for p in made.parts] == [5, 14, 6]
    assert [(c.first, c.width) for c in made.columns(x)] == [
        (0, 5), (0, 7), (7, 3), (10, 4), (0, 6),
    ]  # fmt: skip
    for found, alone in zip(made(x), parts, strict=True):
        np.testing.assert_allclose(np.array(found), np.array(alone(x)), rtol=1e-6, atol=1e-6)
    assert sum(a.nbytes for a in made.arrays()) == sum(p.raw.nbytes for p in parts)


def test_joined_products_are_columns_of_one_weight() -> None:
    rng = np.random.default_rng(12)
    raw = [rng.standard_normal((n, 64)).astype(np.float16).view(np.uint8) for n in (5, 7, 3)]
    f16, f32 = format_named("F16"), format_named("F32")
    parts = [Blocks(raw=mx.array(r), quant=f16) for r in raw]
    whole = rng.standard_normal((4, 64)).astype(np.float32).view(np.uint8)
    parts.insert(2, Blocks(raw=mx.array(whole), quant=f32))
    island = Blocks(raw=mx.array(raw[2]), quant=f16, out_dtype=mx.float32)
    made = fuse([*parts, island], are_joined=True)
    assert [p.n_out for p in made.parts] == [12, 4, 3, 3]
    x = mx.array(rng.standard_normal((2, 64)).astype(np.float32))
    found = made.columns(x)
    assert found[0].whole is found[1].whole
    assert [(c.first, c.width) for c in found] == [(0, 5), (5, 7), (0, 4), (0, 3), (0, 3)]
    for columns, alone in zip(found, parts, strict=False):
        wanted = np.array(alone(x))
        np.testing.assert_allclose(np.array(columns.alone()), wanted, rtol=1e-6, atol=1e-6)
    assert len(fuse(parts).parts) == 4


def test_a_single_product_is_not_split() -> None:
    w, x = normal(15, 3, 12), single(normal(16, 2, 12))
    [found] = fuse([dense(w, mx.float32)])(x)
    assert np.array_equal(bits(np.array(found)), bits(np.array(dense(w, mx.float32)(x))))
