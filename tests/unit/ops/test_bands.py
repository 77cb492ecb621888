"""Attention in bands is attention over all slots."""

from __future__ import annotations

import itertools

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops import bands as bands_module
from ds4chat.ops.attention import attend, gather_keys
from ds4chat.ops.bands import attend_bands, bands
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.rope import RopeTable, rotate

WINDOW, HEADS, DIM, HALF = 8, 3, 16, 2


def masked(length: int, n: int, ratio: int, n_slots: int) -> mx.array:
    """`(L, S)` for rows at n .., as a plan of a prompt makes it."""
    row, at = n + np.arange(length)[:, None], np.arange(n - WINDOW + 1, n + length)
    in_window = (at >= 0) & (at <= row) & (at > row - WINDOW)
    rows = np.arange(n_slots) < (row + 1) // ratio
    visible = np.concatenate([np.ones((length, 1), bool), in_window, rows], axis=1)
    return mx.array(np.where(visible, np.float32(0), np.float32(-np.inf)))


@pytest.mark.parametrize(("n", "length"), [(0, 3), (0, 40), (21, 33)])
@pytest.mark.parametrize("has_rows", [False, True])
def test_bands_give_what_all_slots_give(
    n: int, length: int, has_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bands_module, "BAND", 16)
    monkeypatch.setattr(bands_module, "_STEP", 2)
    rng = np.random.default_rng(n + length)

    def drawn(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape).astype(np.float32))

    n_slots = (n + length) // 4 + 3 if has_rows else 0
    mask = masked(length, n, 4, n_slots)
    is_live = (mask == 0).any(axis=0)
    parts = [drawn(WINDOW - 1, DIM), drawn(length, DIM)]
    parts += [drawn(n_slots, DIM)] if has_rows else []
    parts = [
        mx.where(live[:, None], p, mx.nan)
        for p, live in zip(parts, _cut(is_live, parts), strict=True)
    ]
    q, sink = drawn(length, HEADS * DIM), drawn(HEADS)
    angle = drawn(length, HALF)
    table = RopeTable(cos=mx.cos(angle), sin=mx.sin(angle))
    cut = bands(length, [p.shape[0] for p in parts], HEADS, (n, 4) if has_rows else (0, 0))
    found = attend_bands(q, gather_keys(parts, is_live), mask, sink, table, 1e-6, cut)
    heads = rotate(rms_norm(q.reshape(length, HEADS, DIM), None, 1e-6), table)
    wanted = attend(heads, gather_keys(parts, is_live), mask, sink)
    wanted = rotate(wanted, table, inverse=True)
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-5, atol=1e-5)


def _cut(is_live: mx.array, parts: list[mx.array]) -> list[mx.array]:
    borders = np.cumsum([1] + [p.shape[0] for p in parts])
    return [is_live[a:b] for a, b in itertools.pairwise(borders)]


@pytest.mark.parametrize(("length", "n_compressed"), [(1, 0), (2048, 512), (2048, 300_000)])
def test_bands_cover_every_row_once_and_stay_small(length: int, n_compressed: int) -> None:
    made = list(bands(length, [127, length, n_compressed], 64))
    rows = [i for band in made for i in range(band.first, band.last)]
    assert rows == list(range(length))
    for band in made:
        n_slots = sum(part.stop - part.start for part in band.slots)
        assert band.slots[1] == slice(1 + band.first, 1 + band.last + 127)
        assert (band.last - band.first) * 64 * n_slots <= 1 << 28
