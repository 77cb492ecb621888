"""Decode attention along a conversation: passes of several rows against single steps.

A pass sees more slots than a single step does: rings hold later rows, and compressed rows come
in steps of capacity. What a step cannot see is NaN here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.model.kv import padded, ring_size
from ds4chat.model.plan import _masks, _visible, ring_positions
from ds4chat.ops import attention_kernels as kernels
from ds4chat.ops.dispatch import current, use
from ds4chat.ops.rope import RopeTable
from tests.kernels import host_build
from tests.kernels.attention_cases import ROPE, normed, turned
from tests.kernels.blocks import nmse
from tests.kernels.cases import from_bf16, to_bf16
from tests.kernels.host_dispatch import HostDispatcher

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
HEADS, WIDTH, WINDOW, ROWS = 8, 64, 128, 5
KEPT = 512
STARTS = (0, 3, 125, 253, 511, 2046, 2400)
"""An empty window, a growing and a full one, one more step of capacity, a choice of rows."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Values of all positions and compressed rows, in the precision that kernels see."""

    q: Array
    rows: Array
    compressed: Array
    sink: Array
    cos: Array
    sin: Array
    hidden: Array  # (positions, compressed rows): which ones an indexer drops


def drawn(n_end: int) -> Model:
    rng = np.random.default_rng(n_end)

    def held(*shape: int) -> Array:
        return from_bf16(to_bf16(rng.standard_normal(shape).astype(np.float32)))

    angle = rng.uniform(0, 6, (n_end, ROPE // 2))
    n_rows = n_end // 4
    rank = rng.permuted(np.broadcast_to(np.arange(n_rows), (n_end, n_rows)), axis=1)
    return Model(
        q=held(n_end, HEADS * WIDTH),
        rows=held(n_end, WIDTH),
        compressed=held(n_rows, WIDTH),
        sink=rng.standard_normal(HEADS).astype(np.float32),
        cos=np.cos(angle).astype(np.float32),
        sin=np.sin(angle).astype(np.float32),
        hidden=rank >= KEPT,
    )


def attend(m: Model, n: int, length: int, ratio: int) -> Array:
    """Rows n .. n + length - 1 in one pass, as a step lays them out."""
    ring, end = ring_size(WINDOW), n + length
    at = ring_positions(end, ring)
    window = np.where((at >= 0)[:, None], m.rows[np.maximum(at, 0)], np.nan)
    n_slots = padded(end // ratio) if ratio else 0
    mask, _ = _masks(_visible(np, n, length, at, WINDOW, ratio, n_slots))
    keys = np.full((n_slots, WIDTH), np.nan, np.float32)
    if ratio:
        n_there = end // ratio
        keys[:n_there] = m.compressed[:n_there]
        mask[:, 1 + ring :][:, :n_there][m.hidden[n:end, :n_there]] = -np.inf
    out = kernels.decode(
        _half(m.q[n:end]),
        _half(window),
        _half(keys) if ratio else None,
        mx.array(mask),
        mx.array(m.sink),
        RopeTable(cos=mx.array(m.cos[n:end]), sin=mx.array(m.sin[n:end])),
        eps=1e-6,
        dtype=mx.bfloat16,
    )
    assert out is not None
    made: Array = np.array(out.astype(mx.float32))
    return made


def _half(a: Array) -> mx.array:
    return mx.array(a.astype(np.float32)).astype(mx.bfloat16)


def exact(m: Model, position: int, ratio: int) -> Array:
    """One row in float64."""
    seen = m.rows[max(0, position - WINDOW + 1) : position + 1]
    if ratio:
        n_there = (position + 1) // ratio
        kept = ~m.hidden[position, :n_there]
        seen = np.concatenate([seen, m.compressed[:n_there][kept]])
    values = seen.astype(np.float64)
    cos, sin = (a[position : position + 1].astype(np.float64) for a in (m.cos, m.sin))
    heads = turned(normed(m.q[position].astype(np.float64).reshape(1, HEADS, WIDTH)), cos, sin)
    weight = np.exp(heads[0] @ values.T * WIDTH**-0.5)
    weight /= weight.sum(1, keepdims=True) + np.exp(m.sink.astype(np.float64))[:, None]
    made: Array = turned((weight @ values)[None], cos, -sin)[0]
    return made


@pytest.fixture
def launched() -> Iterator[dict[str, int]]:
    before, host = current(), HostDispatcher()
    use(host)
    yield host.launched
    use(before)


PLACES = [(n, 4) for n in STARTS] + [(n, 0) for n in STARTS if n < 2 * WINDOW]


@pytest.mark.parametrize(("n", "ratio"), PLACES)
def test_a_pass_has_the_bits_of_its_steps(n: int, ratio: int, launched: dict[str, int]) -> None:
    m = drawn(n + ROWS)
    together = attend(m, n, ROWS, ratio)
    alone = np.concatenate([attend(m, n + i, 1, ratio) for i in range(ROWS)])
    np.testing.assert_array_equal(together, alone)
    wanted = np.stack([exact(m, n + i, ratio) for i in range(ROWS)])
    assert nmse(together, wanted) < 2e-5
    name = "attn_tiles" if ratio else "attn_window_tiles"
    assert launched == {name: 1 + ROWS, "attn_join": 1 + ROWS}
