"""Rotary tables against float64, with and without YaRN, and the rotation itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.ops.rope import Rope, RopeSpec, RopeTable, rotate
from tests.unit.ops.exact import bits, double, normal, single

POSITIONS = np.array([0, 1, 2, 63, 127, 128, 4095, 65_535, 131_072, 999_999, 1_000_000])
PLAIN = RopeSpec(dim=64, base=10_000.0)
FLASH = RopeSpec(dim=64, base=160_000.0, factor=16.0, original_ctx=65_536)
OTHER = RopeSpec(dim=32, base=5_000.0, factor=4.0, original_ctx=2_048, beta_fast=20.0)


WIDE = RopeSpec(dim=64, base=200.0, factor=8.0, original_ctx=2_048)  # blends beyond pair 31
WIDEST = RopeSpec(dim=64, base=60.0, factor=8.0, original_ctx=65_536, beta_fast=1_000.0)


def yarn(spec: RopeSpec, pair: int) -> float:
    """One frequency, by the book."""
    whole = math.pow(spec.base, -2 * pair / spec.dim)
    if spec.factor == 1.0:
        return whole

    def pair_of(rotations: float) -> float:
        turns = spec.original_ctx / (2 * math.pi * rotations)
        return spec.dim * math.log(turns) / (2 * math.log(spec.base))

    low = max(math.floor(pair_of(spec.beta_fast)), 0)
    high = min(math.ceil(pair_of(spec.beta_slow)), spec.dim - 1)
    keep = 1 - min(max((pair - low) / (high - low), 0), 1)
    return whole * keep + whole / spec.factor * (1 - keep)


@pytest.mark.parametrize("spec", [PLAIN, FLASH, OTHER, WIDE, WIDEST])
def test_tables_at_positions_up_to_a_million(spec: RopeSpec) -> None:
    table = Rope(spec).table(POSITIONS)
    assert table.cos.shape == (len(POSITIONS), spec.dim // 2)
    for row, position in enumerate(POSITIONS.tolist()):
        for pair in range(spec.dim // 2):
            angle = position * yarn(spec, pair)
            assert float(table.cos[row, pair]) == pytest.approx(math.cos(angle), abs=1e-7)
            assert float(table.sin[row, pair]) == pytest.approx(math.sin(angle), abs=1e-7)


def test_yarn_of_the_published_model_blends_pairs_15_to_25() -> None:
    found = FLASH.frequencies()
    whole = 160_000.0 ** (-np.arange(32) / 32)
    assert np.allclose(found[:16], whole[:16], rtol=1e-15)
    assert np.allclose(found[25:], whole[25:] / 16, rtol=1e-15)
    assert found[20] == pytest.approx(whole[20] * (0.5 + 0.5 / 16))


@pytest.mark.parametrize("shape", [(5, 128), (5, 3, 128), (5, 64)])
def test_rotation_turns_neighbouring_pairs(shape: tuple[int, ...]) -> None:
    x, at = normal(1, *shape), np.array([0, 1, 100, 128, 5_000])
    found = double(rotate(single(x), Rope(PLAIN).table(at)))
    for row, position in enumerate(at.tolist()):
        pairs = x[row, ..., -64::2] + 1j * x[row, ..., -63::2]
        turned = pairs * np.exp(1j * position * np.array([yarn(PLAIN, i) for i in range(32)]))
        assert np.allclose(found[row, ..., -64::2], turned.real, rtol=0, atol=1e-6)
        assert np.allclose(found[row, ..., -63::2], turned.imag, rtol=0, atol=1e-6)
    still = shape[-1] - 64
    assert np.array_equal(bits(found[..., :still]), bits(x[..., :still]))


def test_inverse_undoes_the_rotation() -> None:
    x, table = normal(2, 4, 2, 96), Rope(FLASH).table(np.array([3, 77, 1_000, 1_000_000]))
    back = double(rotate(rotate(single(x), table), table, inverse=True))
    assert np.allclose(back, x, rtol=0, atol=1e-6)


def test_position_zero_changes_nothing() -> None:
    x = normal(3, 1, 64)
    assert np.array_equal(
        bits(np.array(rotate(single(x), Rope(PLAIN).table(np.array([0]))))), bits(x)
    )


def test_row_of_a_table() -> None:
    table = Rope(FLASH).table(np.array([5, 6]))
    alone = Rope(FLASH).table(np.array([6]))
    assert np.array_equal(bits(np.array(table.row(1).cos)), bits(np.array(alone.cos)))
    assert np.array_equal(bits(np.array(table.row(1).sin)), bits(np.array(alone.sin)))


def test_rows_that_are_kept_have_the_bits_of_a_table_of_their_own() -> None:
    rope = Rope(RopeSpec(dim=12, base=10000.0, factor=16.0, original_ctx=4096))
    for n, length in ((0, 1), (255, 1), (250, 8), (256, 8), (70_001, 3), (9, 1)):
        found, wanted = rope.rows(n, length), rope.host_table(n + np.arange(length))
        for i in range(length):
            alone = rope.host_table(np.array([n + i]))
            for name in ("cos", "sin"):
                one, some, many = (getattr(t, name) for t in (alone, found, wanted))
                assert one[0].tobytes() == some[i].tobytes() == many[i].tobytes()


def test_only_some_tables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()
    table = Rope.host_table

    def watched(self: Rope, positions: NDArray[np.int64]) -> RopeTable:
        made.append(int(positions[0]))
        return table(self, positions)

    monkeypatch.setattr(Rope, "host_table", watched)
    rope = Rope(RopeSpec(dim=8, base=10000.0))
    for n in (0, 1, 255, 256, 512, 768, 1024, 1025, 0, 1024):
        rope.rows(n, 1)
    assert made == [0, 256, 512, 768, 1024, 0]
