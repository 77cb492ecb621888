"""A weight that stays in its file's blocks, whatever their format, and is multiplied so.

Up to 8 rows are a kernel's, where one is in use. More rows of bf16 are another's that unpacks
a weight once for 64 of them; many are MLX's own product with a weight unpacked to bf16. Else
stock MLX decodes a tile of the weight to float32 for each product: exact values and little
memory, but slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants import QuantFormat
from ds4chat.ops.dispatch import current
from ds4chat.ops.qmatmul import MAX_ROWS, BlockWeight, has_kernel, qmatmul
from ds4chat.ops.unpack import unpack
from ds4chat.ops.unpack_kernels import TILE, unpack_bf16
from ds4chat.ops.wide_kernels import product

_TILE_VALUES = 1 << 25  # decoded at once: 128 MB of float32
_HALF_VALUES = 1 << 27  # unpacked at once: 256 MB of bf16
_WIDE_ROWS = 32
"""Rows up to which a product is made from blocks; for more the weight is unpacked first.

On an H200, 67 million weights of Q8_0: 16 rows 0.11 against 0.20 ms, 64 rows 0.20 and 0.19.
"""
_MXFP4_OVERFLOWS = 253  # from this exponent on its largest magnitude is infinite
_FLOAT_TYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_FLOAT_BITS = {
    "F32": (mx.uint32, 0x7F80_0000),
    "F16": (mx.uint16, 0x7C00),
    "BF16": (mx.uint16, 0x7F80),
}
_MANY = 64  # expert choices of a pass from which each expert is decoded once for all rows


SCALES_AT = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q2_K": (80, 82),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ2_XXS": (0,),
}
"""Where the halves stand that scale a block; MXFP4 has an exponent, floats scale nothing."""


def upload(chunks: Iterable[NDArray[np.uint8]]) -> mx.array:
    """Join chunks of bytes `(n,)` on the device; a chunk may be reused once the next is taken.

    The join is a copy on purpose: an array made from NumPy lies in memory that MLX shares with
    the host, on CUDA managed memory whose pages would move at first use.
    """
    parts = [mx.array(chunk) for chunk in chunks]
    if len(parts) == 1:
        parts = [parts[0][:1], parts[0][1:]]
    joined = mx.concatenate(parts)
    mx.eval(joined)
    return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """A weight `[out, in]` or `[E, out, in]` as `raw` `(..., out, row_bytes)` uint8.

    Products have the type `out_dtype`, by default that of their input. Sums are float32.
    """

    raw: mx.array
    quant: QuantFormat
    out_dtype: mx.Dtype | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """`(L, in)` to `(L, out)`."""
        if self._has_kernel(x):
            return self._by_kernel(x, self.raw)
        made = self._many_rows(x)
        if made is not None:
            return made
        wide = x.astype(mx.float32)
        step = max(1, _TILE_VALUES // self.n_in)
        parts = [
            wide @ self._values(self.raw[start : start + step]).T
            for start in range(0, self.n_out, step)
        ]
        joined = parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=-1)
        return joined.astype(self.out_dtype or x.dtype)

    def _many_rows(self, x: mx.array) -> mx.array | None:
        """The product in bf16 with float32 sums; None where it is not for these types."""
        if x.shape[0] <= _WIDE_ROWS and self._is_half(x):
            made = product(x, self.raw, self.quant, x.dtype)
            if made is not None:
                return made
        step = max(TILE, _HALF_VALUES // self.n_in // TILE * TILE)
        parts = []
        for start in range(0, self.n_out, step):
            weight = self._halves(x, self.raw[start : start + step])
            if weight is None:
                return None
            parts.append(x @ weight.T)
        return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=-1)

    def _is_half(self, x: mx.array) -> bool:
        """Whether a product with x may be made in bf16: not an island's."""
        is_half = x.dtype == mx.bfloat16 == (self.out_dtype or x.dtype)
        return is_half and not current().is_reference

    def _halves(self, x: mx.array, rows: mx.array) -> mx.array | None:
        """`(N, row_bytes)` as bf16 values for a product with x, or None."""
        if not self._is_half(x):
            return None
        if self.quant.name == "BF16":
            return rows.view(mx.bfloat16)
        return unpack_bf16(rows, self.quant)

    def _has_kernel(self, x: mx.array) -> bool:
        dispatcher = current()
        return (
            not dispatcher.is_reference
            and x.shape[0] <= MAX_ROWS
            and has_kernel(self.quant, self.n_in)
            and f"qmatmul_{self.quant.name.lower()}" not in dispatcher.fallbacks
        )

    def _by_kernel(self, x: mx.array, rows: mx.array, n_groups: int = 1) -> mx.array:
        weight = BlockWeight(blocks=rows, quant=self.quant, n_in=self.n_in)
        return qmatmul(x, weight, out_dtype=self.out_dtype or x.dtype, n_groups=n_groups)

    def grouped_rows(self, x: mx.array, n_groups: int) -> mx.array | None:
        """`grouped` for `(L, G * in)` and to `(L, out)` where a kernel does it, else None.

        Each reshape is a node that MLX evaluates.
        """
        return self._by_kernel(x, self.raw, n_groups) if self._has_kernel(x) else None

    def grouped(self, x: mx.array) -> mx.array:
        """`(L, G, in)` through G matrices, one above the other: `(L, G, out / G)`."""
        n_groups = x.shape[1]
        raw = self.raw.reshape(n_groups, -1, self.raw.shape[-1])
        made = self.grouped_rows(x.reshape(x.shape[0], -1), n_groups)
        if made is not None:
            return made.reshape(x.shape[0], n_groups, -1)
        half = self._halves(x, self.raw)
        weight = self._values(raw) if half is None else half.reshape(n_groups, -1, x.shape[2])
        rows = x.astype(weight.dtype).swapaxes(0, 1)
        return (rows @ weight.swapaxes(1, 2)).swapaxes(0, 1).astype(x.dtype)

    def expert(self, x: mx.array, expert_idx: mx.array) -> mx.array:
        """`(L, 1 or k, 1, in)` with `(L, k)` expert ids to `(L, k, 1, out)`."""
        if expert_idx.size >= _MANY:
            return self._by_expert(x, expert_idx)
        wide, out = x.astype(mx.float32), []
        for j in range(expert_idx.shape[1]):
            weight = self._values(self.raw[expert_idx[:, j]])
            row = wide[:, j] if x.shape[1] > 1 else wide[:, 0]
            out.append(row @ weight.swapaxes(1, 2))
        return mx.stack(out, axis=1).astype(x.dtype)

    def _by_expert(self, x: mx.array, expert_idx: mx.array) -> mx.array:
        """The same for many rows: experts in tiles, each decoded once."""
        length, k = expert_idx.shape
        chosen = np.array(expert_idx).reshape(-1)  # sync: which experts a tile needs
        order = np.argsort(chosen, kind="stable")
        back = mx.array(np.argsort(order, kind="stable").astype(np.int32))
        rows = mx.broadcast_to(x, (length, k, 1, self.n_in)).reshape(length * k, 1, self.n_in)
        parts = []
        for first, tile in self._tiles(chosen[order]):
            weight = self._values(self.raw[first : first + self._n_together])
            part = mx.gather_mm(
                rows[mx.array(order[tile].astype(np.int32))].astype(mx.float32),
                weight.swapaxes(1, 2),
                rhs_indices=mx.array((chosen[order[tile]] - first).astype(np.uint32)),
            ).astype(x.dtype)
            mx.eval(part)  # sync: one tile's decoded weights at a time
            parts.append(part)
        return mx.concatenate(parts, axis=0)[back].reshape(length, k, 1, self.n_out)

    def _tiles(self, chosen: NDArray[np.int64]) -> Iterable[tuple[int, slice]]:
        """First expert of each tile in use, and where its choices stand among sorted ones."""
        step = self._n_together
        for first in range(0, int(chosen[-1]) + 1, step):
            start, stop = np.searchsorted(chosen, [first, first + step])
            if stop > start:
                yield first, slice(int(start), int(stop))

    def values(self) -> mx.array:
        """All values as float32 (lazy)."""
        return self._values(self.raw)

    def is_finite(self) -> bool:
        """Whether no value is NaN or infinite, as far as the scales tell."""
        if self.quant.name == "MXFP4":
            exponents = self.raw.reshape(-1, self.quant.block_bytes)[:, 0]
            return bool(mx.max(exponents) < _MXFP4_OVERFLOWS)
        return all(bool(mx.max(bits & mask) < top) for bits, mask, top in self._scale_bits())

    def with_nan(self) -> Blocks:
        """The same with NaN for every scale that is infinite: no clamp hides a NaN."""
        if self.quant.name not in SCALES_AT:
            return self._floats_with_nan()
        raw = np.array(self.raw).reshape(-1, self.quant.block_bytes)
        for at in SCALES_AT[self.quant.name]:
            halves = np.ascontiguousarray(raw[:, at : at + 2]).view("<f2")
            halves[~np.isfinite(halves)] = np.nan
            raw[:, at : at + 2] = halves.view(np.uint8)
        return replace(self, raw=mx.array(raw.reshape(self.raw.shape)))

    def _floats_with_nan(self) -> Blocks:
        dtype = _FLOAT_TYPES.get(self.quant.name)
        if dtype is None:
            return self
        values = self.raw.view(dtype)
        kept = mx.where(mx.isfinite(values), values, mx.array(mx.nan, dtype=dtype))
        return replace(self, raw=kept.view(mx.uint8))

    def _scale_bits(self) -> Iterable[tuple[mx.array, int, int]]:
        """Scales as integers, the bits but the sign, and from where on they are no number."""
        if self.quant.name in _FLOAT_TYPES:
            word, top = _FLOAT_BITS[self.quant.name]
            yield self.raw.view(word), (1 << (8 * word.size - 1)) - 1, top
            return
        blocks = self.raw.reshape(-1, self.quant.block_bytes)
        for at in SCALES_AT[self.quant.name]:
            halves = mx.contiguous(blocks[:, at : at + 2])
            yield halves.view(mx.uint16), 0x7FFF, _FLOAT_BITS["F16"][1]

    def _values(self, raw: mx.array) -> mx.array:
        return unpack(raw, self.quant.name, self.quant.block_bytes)

    @property
    def _n_together(self) -> int:
        return max(1, _TILE_VALUES // (self.n_in * self.n_out))

    @property
    def n_in(self) -> int:
        """Width of the input."""
        return int(self.raw.shape[-1]) // self.quant.block_bytes * self.quant.block_values

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return int(self.raw.shape[-2])

    def arrays(self) -> list[mx.array]:
        """The arrays that hold the weight."""
        return [self.raw]
