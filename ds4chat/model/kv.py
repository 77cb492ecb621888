"""The KV state: an append-only log plus n (`commit` sets n; nothing else moves).

Every array holds rows at slots fixed by absolute position or row index. A pass writes the rows
of the positions n, n+1, ..; committing fewer of them needs no undo, because what is visible
derives from n and no slot is used again before its row has left the window by a block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.model.config import TargetConfig

MAX_ROWS = 8
"""Rows of a decode or verify pass: the anchor and at most seven drafts."""

T = TypeVar("T")

CAPACITY_STEP = 64
"""Compressed rows are allocated and attended in multiples of this many."""


def ring_size(span: int) -> int:
    """Slots for a ring from which the last `span` rows stay readable under a full block."""
    return span + MAX_ROWS


def padded(n_rows: int) -> int:
    """`n_rows` rounded up to the capacity step (at least one step)."""
    return max(1, -(-n_rows // CAPACITY_STEP)) * CAPACITY_STEP


def kept_rows(ratio: int, n_rows: int) -> int:
    """`n_rows` rounded up for a pass whose graph is kept: further, so that it lasts longer.

    At ratio 4 to a multiple of 256 rows, and always by less than a third of 256 rows or more.
    """
    least = 4 * CAPACITY_STEP if ratio == 4 else CAPACITY_STEP
    step = max(least, (1 << n_rows.bit_length()) // 8)
    return max(1, -(-n_rows // step)) * step


def raw_span(ratio: int) -> int:
    """How many raw rows a compressor must still read at any n: 2r - 1 if it overlaps."""
    return 2 * ratio - 1 if ratio == 4 else ratio - 1


def open_start(ratio: int, n: int) -> int:
    """First position whose raw row is state at n tokens."""
    start = ratio * (n // ratio) - (ratio if ratio == 4 else 0)
    return max(0, start)


@dataclass(slots=True, kw_only=True)
class LayerCache:
    """Arrays of one layer. Rows of one position live at `position % len(array)`.

    `window` `(R, d)`; `rows` `(cap, d)` and `index_rows` `(cap, di)` by row index; `raw`
    `(Rr, 2, width)` and `index_raw`: values and gates of a compressor.
    """

    ratio: int
    window: mx.array
    rows: mx.array | None = None
    index_rows: mx.array | None = None
    raw: mx.array | None = None
    index_raw: mx.array | None = None

    def arrays(self) -> list[mx.array]:
        """All arrays in use."""
        every = (self.window, self.rows, self.index_rows, self.raw, self.index_raw)
        return [a for a in every if a is not None]

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Hold these arrays instead, in the order of `arrays`."""
        for name, array in zip(_NAMES[self.ratio], arrays, strict=True):
            setattr(self, name, array)

    @classmethod
    def of(cls, ratio: int, arrays: Iterator[mx.array]) -> Self:
        """A cache of the next arrays, in the order of `arrays`."""
        return cls(ratio=ratio, **{name: next(arrays) for name in _NAMES[ratio]})


_EVERY = ("window", "rows", "index_rows", "raw", "index_raw")
_NAMES = defaultdict(lambda: ("window", "rows", "raw"), {0: ("window",), 4: _EVERY})
"""The arrays of a layer by its ratio, in the order of `LayerCache.arrays`."""


def _grow(rows: mx.array | None, n_rows: int) -> mx.array | None:
    if rows is None or rows.shape[0] >= n_rows:
        return rows
    capacity = padded(max(n_rows, rows.shape[0] + rows.shape[0] // 2))
    more = mx.zeros((capacity - rows.shape[0], rows.shape[1]), dtype=rows.dtype)
    return mx.concatenate([rows, more], axis=0)


class KVLog:
    """The state of one timeline of the target model.

    `n_moves` counts what may have moved arrays though they are the same: the host read them, or
    a pass through MLX wrote to them.
    """

    def __init__(self, config: TargetConfig, dtype: mx.Dtype) -> None:
        self._config = config
        self._dtype = dtype
        self.n = 0
        self.n_moves = 0
        self.layers = [self._new_layer(ratio) for ratio in config.compress_ratios]
        self._ratios = [ratio for ratio in set(config.compress_ratios) if ratio]

    def _new_layer(self, ratio: int) -> LayerCache:
        c, d = self._config, self._config.block.head_dim
        window = mx.zeros((ring_size(c.block.window), d), dtype=self._dtype)
        if ratio == 0:
            return LayerCache(ratio=0, window=window)
        lanes = 2 if ratio == 4 else 1
        slots = ring_size(raw_span(ratio))
        cache = LayerCache(
            ratio=ratio,
            window=window,
            rows=mx.zeros((CAPACITY_STEP, d), dtype=self._dtype),
            raw=mx.zeros((slots, 2, lanes * d), dtype=mx.float32),
        )
        if ratio == 4:
            cache.index_rows = mx.zeros((CAPACITY_STEP, c.index_dim), dtype=mx.float32)
            cache.index_raw = mx.zeros((slots, 2, lanes * c.index_dim), dtype=mx.float32)
        return cache

    def reserve(self, n_tokens: int, *, is_kept: bool = False) -> None:
        """Make room for the compressed rows of `n_tokens` tokens, or of a kept pass."""
        n_rows = {
            ratio: kept_rows(ratio, n_tokens // ratio) if is_kept else padded(n_tokens // ratio)
            for ratio in self._ratios
        }
        for layer in self.layers:
            rows = layer.rows
            if rows is not None and rows.shape[0] < n_rows[layer.ratio]:
                layer.rows = _grow(rows, n_rows[layer.ratio])
                layer.index_rows = _grow(layer.index_rows, n_rows[layer.ratio])

    def arrays(self) -> list[mx.array]:
        """All arrays, for one evaluation of the whole state."""
        return [a for layer in self.layers for a in layer.arrays()]

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Hold these arrays instead, in the order of `arrays`."""
        at = 0
        for layer in self.layers:
            n = len(layer.arrays())
            layer.put(arrays[at : at + n])
            at += n

    def n_bytes(self) -> int:
        """Bytes that the arrays hold."""
        return sum(a.nbytes for a in self.arrays())

    def logical_state(self) -> dict[str, NDArray[Any]]:
        """The rows that count at n tokens, in position or index order.

        The host reads the arrays where they lie, and some devices move them for that.
        """
        self.n_moves += 1
        state: dict[str, NDArray[Any]] = {}
        for i, layer in enumerate(self.layers):
            state.update(self._layer_state(f"layers.{i}.", layer, 0, host_part))
        return state

    def lazy_state(self, since: int = 0) -> dict[str, mx.array]:
        """The logical state, not evaluated; of compressed rows those after `since` tokens."""
        state: dict[str, mx.array] = {}
        for i, layer in enumerate(self.layers):
            state.update(self._layer_state(f"layers.{i}.", layer, since, ring_part))
        return state

    def _layer_state(
        self,
        prefix: str,
        layer: LayerCache,
        since: int,
        part: Callable[[mx.array, int, int], T],
    ) -> dict[str, T]:
        n, span = self.n, self._config.block.window - 1
        state = {prefix + "window": part(layer.window, max(0, n - span), n)}
        if layer.ratio == 0:
            return state
        start = open_start(layer.ratio, n)
        for name, rows, raw in (
            ("", layer.rows, layer.raw),
            ("index_", layer.index_rows, layer.index_raw),
        ):
            if rows is not None and raw is not None:
                first, last = since // layer.ratio, n // layer.ratio
                state[f"{prefix}{name}rows"] = part(rows[first:last], 0, last - first)
                state[f"{prefix}{name}raw"] = part(raw, start, n)
        return state

    def restore(self, n: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold the logical state of `n` tokens, as `logical_state` gave it."""
        self.n = n
        for i, layer in enumerate(self.layers):
            self._restore_layer(f"layers.{i}.", layer, state)

    def _restore_layer(
        self, prefix: str, layer: LayerCache, state: Mapping[str, NDArray[Any]]
    ) -> None:
        window = state[prefix + "window"]
        layer.window = fill_ring(layer.window, self.n - len(window), window)
        if layer.rows is None or layer.raw is None:
            return
        start = open_start(layer.ratio, self.n)
        layer.rows = _fill_rows(layer.rows, state[prefix + "rows"])
        layer.raw = fill_ring(layer.raw, start, state[prefix + "raw"])
        if layer.index_rows is not None and layer.index_raw is not None:
            layer.index_rows = _fill_rows(layer.index_rows, state[prefix + "index_rows"])
            layer.index_raw = fill_ring(layer.index_raw, start, state[prefix + "index_raw"])

    def poison(self) -> None:
        """Fill every slot outside the logical state with NaN (tests of exactness)."""
        n = self.n
        for layer in self.layers:
            start = max(0, n - self._config.block.window + 1)
            layer.window = poison_ring(layer.window, start, n)
            if layer.ratio == 0:
                continue
            n_rows, start = n // layer.ratio, open_start(layer.ratio, n)
            if layer.rows is not None and layer.raw is not None:
                layer.rows = _poison(layer.rows, np.arange(n_rows))
                layer.raw = poison_ring(layer.raw, start, n)
            if layer.index_rows is not None and layer.index_raw is not None:
                layer.index_rows = _poison(layer.index_rows, np.arange(n_rows))
                layer.index_raw = poison_ring(layer.index_raw, start, n)


def poison_ring(ring: mx.array, start: int, stop: int) -> mx.array:
    """A ring with NaN everywhere but at the slots of positions start..stop-1."""
    return _poison(ring, np.arange(start, stop) % ring.shape[0])


def _poison(array: mx.array, kept: NDArray[np.int64]) -> mx.array:
    is_kept = np.zeros(array.shape[0], dtype=bool)
    is_kept[kept] = True
    shape = (array.shape[0],) + (1,) * (array.ndim - 1)
    return mx.where(mx.array(is_kept).reshape(shape), array, mx.nan).astype(array.dtype)


def host_part(ring: mx.array, start: int, stop: int) -> NDArray[Any]:
    """A copy of the rows of positions start..stop-1 in position order; no device picks them."""
    rows = to_numpy(ring)
    return rows[np.arange(start, stop) % max(1, len(rows))]


def ring_part(ring: mx.array, start: int, stop: int) -> mx.array:
    """A copy of the rows of positions start..stop-1 in position order.

    Never the ring itself: a pass may write to it where it lies (`engine/recorded.py`).
    """
    if start == stop:
        return ring[:0]
    return ring[mx.array((np.arange(start, stop) % ring.shape[0]).astype(np.int32))]


def fill_ring(ring: mx.array, start: int, rows: NDArray[Any]) -> mx.array:
    """A ring like `ring` with `rows` at the slots of the positions from `start` on."""
    filled = np.zeros(ring.shape, rows.dtype)
    filled[np.arange(start, start + len(rows)) % ring.shape[0]] = rows
    return from_numpy(filled, ring.dtype)


def _fill_rows(old: mx.array, rows: NDArray[Any]) -> mx.array:
    filled = np.zeros((padded(len(rows)), *rows.shape[1:]), rows.dtype)
    filled[: len(rows)] = rows
    return from_numpy(filled, old.dtype)


def to_numpy(array: mx.array) -> NDArray[Any]:
    """A NumPy copy; bfloat16 comes as its bits (uint16)."""
    if array.dtype == mx.bfloat16:
        array = array.view(mx.uint16)
    return np.array(array)


def from_numpy(array: NDArray[Any], dtype: mx.Dtype) -> mx.array:
    """The reverse of `to_numpy`."""
    made = mx.array(array)
    return made.view(mx.bfloat16) if dtype == mx.bfloat16 else made
