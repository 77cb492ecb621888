"""Packing of rounded rows: exact, compact, and never lossy."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ds4chat.engine.snapshot_pack import E4M3, PackRule, pack, unpack
from ds4chat.model.kv import to_numpy
from ds4chat.ops.quantsim import index_round_trip, kv_round_trip

FP8 = PackRule(rope_dim=64)
FP4 = PackRule(is_index=True)


def wild(seed: int, shape: tuple[int, int], spread: float) -> mx.array:
    """Values over many powers of two, with zeros of both signs."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** rng.uniform(-spread, spread, (shape[0], 1))
    values *= 2.0 ** rng.uniform(-spread, 0, shape)
    values[rng.random(shape) < 0.1] = 0.0
    values[rng.random(shape) < 0.05] = -0.0
    values[0] = 0.0
    return mx.array(values.astype(np.float32))


def assert_packs(rows: NDArray[Any], rule: PackRule, endings: set[str]) -> int:
    tensors = pack("x", rows, rule)
    assert {name.removeprefix("x") for name in tensors} == endings
    back = unpack(tensors, "x", rows.dtype)
    assert back.dtype == rows.dtype
    assert back.shape == rows.shape
    assert back.tobytes() == rows.tobytes()
    return sum(t.data.nbytes for t in tensors.values())


def test_our_e4m3_is_that_of_mlx() -> None:
    theirs = np.array(mx.from_fp8(mx.array(np.arange(256, dtype=np.uint8)), mx.float32))
    sure = ~np.isnan(E4M3)
    assert sure.sum() == 254
    assert E4M3[sure].tobytes() == theirs[sure].tobytes()


@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 3.0, 12.0, 40.0]))
def test_fp8_rows_come_back_bit_for_bit(seed: int, spread: float) -> None:
    rounded = kv_round_trip(wild(seed, (9, 64 * 4), spread), 64)
    fp8 = {".fp8", ".e8m0", ".rope"}
    assert assert_packs(to_numpy(rounded), FP8, fp8) == 9 * (192 + 3 + 4 * 64)
    brain = rounded.astype(mx.bfloat16)
    assert assert_packs(to_numpy(brain), FP8, fp8) == 9 * (192 + 3 + 2 * 64)


@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 3.0, 12.0, 30.0]))
def test_fp4_rows_come_back_bit_for_bit(seed: int, spread: float) -> None:
    rounded = index_round_trip(wild(seed, (9, 128), spread))
    assert assert_packs(to_numpy(rounded), FP4, {".fp4", ".e8m0"}) == 9 * (64 + 4)


@pytest.mark.parametrize("rule", [FP8, FP4])
def test_no_rows(rule: PackRule) -> None:
    for kind in (np.float32, np.uint16) if rule is FP8 else (np.float32,):
        assert "x" not in pack("x", np.zeros((0, 192), kind), rule)
        assert_packs(np.zeros((0, 192), kind), rule, set(_endings(rule)))


def _endings(rule: PackRule) -> tuple[str, ...]:
    return (".fp4", ".e8m0") if rule.is_index else (".fp8", ".e8m0", ".rope")


ODD = {
    "NaN": 0x7FC00001,
    "infinity": 0x7F800000,
    "minus infinity": 0xFF800000,
    "near the largest": 0x7F61B1E6,
    "subnormal": 0x000116C2,
    "too fine": 0x3F800008,
}


@pytest.mark.parametrize("rule", [FP8, FP4])
@pytest.mark.parametrize("odd", ODD)
def test_a_value_that_does_not_fit_keeps_all_rows_as_they_are(rule: PackRule, odd: str) -> None:
    rows = to_numpy(kv_round_trip(wild(1, (5, 192), 3.0), 64))
    if rule.is_index:
        rows = to_numpy(index_round_trip(wild(1, (5, 128), 3.0)))
    rows[3, 8] = 1.0
    rows.view(np.uint32)[3, 7] = ODD[odd]
    assert_packs(rows, rule, {""})


def test_rows_without_a_rule_stay_as_they_are() -> None:
    rows = np.array(wild(2, (3, 8), 3.0))
    assert pack("x", rows, None)["x"].data is rows
