"""The round trips against their definition, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.ops.quantsim import (
    fp4_round_trip,
    fp8_round_trip,
    hadamard,
    index_round_trip,
    kv_round_trip,
)
from tests.reference import maths
from tests.unit.ops.exact import bits, double, normal, single

Single = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Format:
    """A round trip, its definition, and what its blocks look like."""

    op: Callable[[mx.array], mx.array]
    wanted: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    block: int
    top: float
    floor: float
    grid: Single  # every value >= 0


def _e4m3() -> Single:
    small = np.arange(8) * 2.0**-9
    large = [(1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8)]
    return np.array([*small, *large], np.float32)[:-1]  # the last code is NaN


FP8 = Format(
    op=fp8_round_trip,
    wanted=lambda x: maths.fp8_round_trip(x, 0),
    block=64,
    top=448.0,
    floor=1e-4,
    grid=_e4m3(),
)
FP4 = Format(
    op=fp4_round_trip,
    wanted=maths.fp4_round_trip,
    block=32,
    top=6.0,
    floor=6 * 2.0**-126,
    grid=np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32),
)
FORMATS = [pytest.param(FP8, id="fp8"), pytest.param(FP4, id="fp4")]


def check(fmt: Format, rows: Single) -> None:
    """Every row of `(N, block)` alone and all rows as one `(1, N * block)`."""
    with np.errstate(under="ignore"):
        wanted = fmt.wanted(rows.astype(np.float64)).astype(np.float32)
    found = np.array(fmt.op(single(rows)))
    wrong = np.flatnonzero(bits(found) != bits(wanted))
    assert not wrong.size, [
        (rows.flat[i], found.flat[i], wanted.flat[i], rows[i // fmt.block]) for i in wrong[:3]
    ]
    together = np.array(fmt.op(single(rows.reshape(1, -1)))).reshape(rows.shape)
    assert np.array_equal(bits(together), bits(wanted))


def near(values: Single) -> Single:
    """Values and their next neighbours on both sides, with both signs."""
    up = np.nextafter(values, np.float32(np.inf))
    down = np.nextafter(values, np.float32(-np.inf))
    positive = np.concatenate([values, up, down])
    return np.concatenate([positive, -positive])


def filled(fmt: Format, values: Single, first: float) -> Single:
    """Blocks of `values`, each led by `first`, which is its largest."""
    width = fmt.block - 1
    rows = np.resize(values, (-(-len(values) // width), width))
    return np.concatenate([np.full((len(rows), 1), first, np.float32), rows], axis=1)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("magnitude", [1e-36, 1e-20, 1e-6, 1e-3, 1.0, 300.0, 1e9, 1e30])
def test_random_rows(fmt: Format, magnitude: float) -> None:
    rows = normal(1, 200, fmt.block) * np.float32(magnitude)
    check(fmt, rows)
    check(fmt, rows * np.exp2(normal(2, 200, fmt.block) * 4))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("power", [-12, -1, 0, 1, 5, 40, 100])
def test_ties_and_their_neighbours(fmt: Format, power: int) -> None:
    """Halfway between codes goes to the even one; a bit beside it to the nearer one."""
    scale = 2.0**power
    middles = (fmt.grid[1:] + fmt.grid[:-1]) / 2 * scale
    for values in (middles, fmt.grid[1:-1] * scale):
        check(fmt, filled(fmt, near(values.astype(np.float32)), fmt.top * scale))


@pytest.mark.parametrize("fmt", FORMATS)
def test_codes_are_kept(fmt: Format) -> None:
    rows = filled(fmt, np.concatenate([fmt.grid, -fmt.grid]), fmt.top)
    assert np.array_equal(bits(np.array(fmt.op(single(rows)))), bits(rows))


@pytest.mark.parametrize("fmt", FORMATS)
def test_scale_borders(fmt: Format) -> None:
    """The largest is a power of two times the top, or the next float beside it."""
    tops = np.float32(fmt.top) * np.exp2(np.arange(-21, 110, dtype=np.float32))
    for first in near(tops.astype(np.float32)):
        values = normal(int(abs(np.log2(abs(first)) * 8)), fmt.block - 1) * abs(first)
        values = np.clip(values / 4, -abs(first), abs(first))
        check(fmt, filled(fmt, values, first))


@pytest.mark.parametrize("fmt", FORMATS)
def test_floor_of_the_largest(fmt: Format) -> None:
    floor = np.float32(fmt.floor)
    for largest in (floor, *near(np.array([floor]))[1:3], floor / 3, floor * 2, floor * 1.7):
        for share in (normal(3, fmt.block), np.linspace(-1, 1, fmt.block, dtype=np.float32)):
            row = np.clip(share, -1, 1) * np.float32(largest)
            row[5] = largest
            check(fmt, row[None])


@pytest.mark.parametrize("fmt", FORMATS)
def test_zeros_keep_their_sign(fmt: Format) -> None:
    row = np.zeros((1, fmt.block), np.float32)
    row[0, ::2] = -0.0
    check(fmt, row)
    row[0, 3] = 2.0  # and values too small for the smallest code
    row[0, 4:8] = [1e-30, -1e-30, 1e-42, -1e-42]
    check(fmt, row)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_second_trip_changes_nothing(fmt: Format) -> None:
    once = fmt.op(single(normal(4, 500, fmt.block)))
    assert np.array_equal(bits(np.array(fmt.op(once))), bits(np.array(once)))


@pytest.mark.parametrize("size", [32, 64, 128, 256, 512])
def test_hadamard_is_the_matrix(size: int) -> None:
    matrix = maths.hadamard(size)
    assert np.allclose(double(hadamard(mx.eye(size))), matrix, rtol=1e-6, atol=0)
    x = normal(5, 3, 7, size)
    assert np.allclose(double(hadamard(single(x))), x @ matrix, rtol=0, atol=2e-6)


def test_hadamard_twice_is_the_identity() -> None:
    x = normal(6, 5, 128)
    assert np.allclose(double(hadamard(hadamard(single(x)))), x, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("head_dim", "rope_dim"), [(128, 64), (512, 64), (96, 32), (192, 64)])
def test_rotary_channels_are_not_rounded(head_dim: int, rope_dim: int) -> None:
    x = normal(7, 4, head_dim)
    found = np.array(kv_round_trip(single(x), rope_dim))
    wanted = maths.fp8_round_trip(x.astype(np.float64), rope_dim)
    assert np.array_equal(bits(found), bits(wanted.astype(np.float32)))
    assert np.array_equal(bits(found[:, -rope_dim:]), bits(x[:, -rope_dim:]))


def test_index_rows_are_spread_then_rounded() -> None:
    """A row of equal values becomes one value, which the blocks beside it do not see."""
    x = np.full((1, 128), 0.75, np.float32)
    found = double(index_round_trip(single(x)))[0]
    assert found[0] == 8.0  # 0.75 * sqrt(128) = 8.485, of scale 2: between 8 and 12
    assert not found[1:].any()
