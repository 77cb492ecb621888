"""Rotary embedding: interleaved pairs, the last `rope_dim` channels of a head."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

TABLE_ROWS, MAX_BLOCKS = 256, 4
"""Positions of a table that is kept, and how many are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Frequencies of one kind of layer; `factor` 1 means no YaRN."""

    dim: int
    base: float
    factor: float = 1.0
    original_ctx: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def frequencies(self) -> NDArray[np.float64]:
        """`(dim / 2,)` radians a position; YaRN as `spec/architecture.md` section 4.

        There is no magnitude correction. (Peng et al. 2023, arXiv:2309.00071, without mscale.)
        """
        pair = np.arange(self.dim // 2, dtype=np.float64)
        freq = self.base ** (-2.0 * pair / self.dim)
        if self.factor == 1.0 or self.original_ctx <= 0:
            return freq
        low = max(math.floor(self._correction(self.beta_fast)), 0)
        high = min(math.ceil(self._correction(self.beta_slow)), self.dim - 1)
        ramp = np.clip((pair - low) / max(0.001, high - low), 0.0, 1.0)
        return freq * (1.0 - ramp) + freq / self.factor * ramp

    def _correction(self, rotations: float) -> float:
        period = self.original_ctx / (rotations * 2.0 * math.pi)
        return self.dim * math.log(period) / (2.0 * math.log(self.base))


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeTable:
    """Cosines and sines of some positions: `(L, dim / 2)` float32 each."""

    cos: mx.array
    sin: mx.array

    def row(self, i: int) -> RopeTable:
        """The table of row `i` alone."""
        return RopeTable(cos=self.cos[i : i + 1], sin=self.sin[i : i + 1])


class Rope:
    """Makes tables for positions; angles are computed in float64."""

    def __init__(self, spec: RopeSpec) -> None:
        self.spec = spec
        self._freq = spec.frequencies()
        self._blocks: dict[int, RopeTable] = {}

    def table(self, positions: NDArray[np.int64]) -> RopeTable:
        """Tables for `(L,)` absolute positions."""
        host = self.host_table(positions)
        return RopeTable(cos=mx.array(host.cos), sin=mx.array(host.sin))

    def host_table(self, positions: NDArray[np.int64]) -> RopeTable:
        """The same of NumPy arrays, for `packed.on_device`."""
        angle = positions.astype(np.float64)[:, None] * self._freq
        cos: Any = np.cos(angle).astype(np.float32)
        sin: Any = np.sin(angle).astype(np.float32)
        return RopeTable(cos=cos, sin=sin)

    def rows(self, n: int, length: int) -> RopeTable:
        """`host_table` of the positions n, n + 1, ..: views of tables that are kept.

        A step asks for one row, and the next step for the next.
        """
        number, at = divmod(n, TABLE_ROWS)
        if at + length > TABLE_ROWS:
            return self.host_table(n + np.arange(length))
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= MAX_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            block = self.host_table(TABLE_ROWS * number + np.arange(TABLE_ROWS))
            self._blocks[number] = block
        return RopeTable(cos=block.cos[at : at + length], sin=block.sin[at : at + length])


def rotate(x: mx.array, table: RopeTable, *, inverse: bool = False) -> mx.array:
    """Rotate the last `rope_dim` channels of `(L, d)` or `(L, H, d)` float32 rows.

    `inverse` rotates by the negative angle (the values of attention carry rotation).
    """
    half = table.cos.shape[-1]
    split = x.shape[-1] - 2 * half
    shape = (x.shape[0],) + (1,) * (x.ndim - 2) + (half,)
    cos, sin = table.cos.reshape(shape), table.sin.reshape(shape)
    if inverse:
        sin = -sin
    pairs = x[..., split:].reshape(*x.shape[:-1], half, 2)
    a, b = pairs[..., 0], pairs[..., 1]
    turned = mx.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)
    turned = turned.reshape(*x.shape[:-1], 2 * half)
    return turned if split == 0 else mx.concatenate([x[..., :split], turned], axis=-1)
