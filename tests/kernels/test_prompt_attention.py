"""Attention of a prompt's rows as its host build runs it, against stock operations."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.ops import dispatch
from ds4chat.ops.attention import attend, gather_keys
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.prompt_attention import PromptKeys, attend_prompt
from ds4chat.ops.rope import RopeTable, rotate
from tests.kernels import host_build
from tests.kernels.blocks import nmse
from tests.kernels.host_dispatch import HostDispatcher

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
WINDOW, DIM, HALF = 24, 128, 16


@pytest.fixture(autouse=True)
def host() -> Iterator[HostDispatcher]:
    before = dispatch.current()
    made = HostDispatcher()
    dispatch.use(made)
    yield made
    dispatch.use(before)


def visible(length: int, n: int, ratio: int, n_rows: int) -> NDArray[np.bool_]:
    """`(L, S)` as a plan of a prompt sees it."""
    row, at = n + np.arange(length)[:, None], np.arange(n - WINDOW + 1, n + length)
    in_window = (at >= 0) & (at <= row) & (at > row - WINDOW)
    parts = [np.ones((length, 1), bool), in_window]
    if ratio:
        parts.append(np.arange(n_rows) < (row + 1) // ratio)
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(
    ("n", "length", "n_heads", "ratio", "has_mask"),
    [
        (0, 30, 16, 0, False),
        (0, 30, 8, 4, False),
        (700, 10, 16, 4, False),
        (700, 10, 16, 4, True),
    ],
)
def test_it_agrees_with_stock_operations(
    n: int, length: int, n_heads: int, ratio: int, has_mask: bool, host: HostDispatcher
) -> None:
    rng = np.random.default_rng((n, length))

    def half(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape).astype(np.float32)).astype(mx.bfloat16)

    n_rows = 192 if ratio else 0
    sees = visible(length, n, ratio, n_rows)
    if has_mask:
        sees[:, -n_rows:] &= rng.random((length, n_rows)) < 0.2
    mask = mx.array(np.where(sees, np.float32(0), np.float32(-np.inf)))
    parts = [half(WINDOW - 1, DIM), half(length, DIM), *([half(n_rows, DIM)] if ratio else [])]
    is_live = (mask == 0).any(axis=0)
    borders = np.cumsum([1] + [p.shape[0] for p in parts])
    parts = [
        mx.where(is_live[a : a + p.shape[0], None], p, mx.nan).astype(mx.bfloat16)
        for a, p in zip(borders[:-1], parts, strict=True)
    ]
    q, sink = half(length, n_heads * DIM) * 3, mx.array(rng.standard_normal(n_heads) * 2)
    sink, angle = sink.astype(mx.float32), mx.array(rng.random((length, HALF)) * 6)
    table = RopeTable(cos=mx.cos(angle), sin=mx.sin(angle))
    seen = PromptKeys(
        before=parts[0],
        own=parts[1],
        rows=parts[2] if ratio else None,
        mask=mask[:, -n_rows:] if has_mask else None,
        n=n,
        ratio=ratio,
    )
    found = attend_prompt(q, seen, sink, table, 1e-6)
    heads = rotate(rms_norm(q.reshape(length, n_heads, DIM), None, 1e-6), table)
    out = attend(heads, gather_keys(parts, is_live), mask, sink)
    wanted = rotate(out, table, inverse=True)
    assert found is not None
    assert host.launched == {"attn_prompt": 1}
    assert found.shape == (length, n_heads, DIM)
    exact = np.array(wanted).astype(np.float64)
    assert nmse(np.array(found.astype(mx.float32)), exact) < 5e-5


def test_a_row_of_nan_in_the_mask_is_spoiled_alone() -> None:
    n, length, ratio = 700, 4, 4
    rng = np.random.default_rng(0)

    def half(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape).astype(np.float32)).astype(mx.bfloat16)

    mask = np.zeros((length, 192), np.float32)
    mask[2] = np.nan
    seen = PromptKeys(
        before=half(WINDOW - 1, DIM),
        own=half(length, DIM),
        rows=half(192, DIM),
        mask=mx.array(mask),
        n=n,
        ratio=ratio,
    )
    table = RopeTable(cos=mx.ones((length, HALF)), sin=mx.zeros((length, HALF)))
    found = attend_prompt(half(length, 8 * DIM), seen, mx.zeros(8), table, 1e-6)
    assert found is not None
    is_nan = np.isnan(np.array(found.astype(mx.float32))).all(axis=(1, 2))
    assert is_nan.tolist() == [False, False, True, False]


def test_other_types_and_heads_have_none() -> None:
    rows = mx.zeros((WINDOW - 1, DIM))
    seen = PromptKeys(before=rows, own=rows[:2], rows=None, mask=None, n=0, ratio=0)
    table = RopeTable(cos=mx.ones((2, HALF)), sin=mx.zeros((2, HALF)))
    assert attend_prompt(mx.zeros((2, 8 * DIM)), seen, mx.zeros(8), table, 1e-6) is None
