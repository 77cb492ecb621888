"""Products with weights, one function whatever the storage format.

On the CPU a weight is float32, stored `[in, out]` so that `x @ w` reads it in order; several
products that share an input are one matrix. On a GPU weights stay in blocks: Q8_0 and MXFP4 in
MLX's own layouts (value for value), other formats as the file has them (`ops/blocks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.blocks import Blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A weight `[in, out]`, or `[E, in, out]` for experts or groups, in one floating type."""

    weight: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """`(L, in)` to `(L, out)`, in the type of the weight."""
        return x.astype(self.weight.dtype) @ self.weight

    def expert(self, x: mx.array, expert_idx: mx.array) -> mx.array:
        """`(L, 1 or k, 1, in)` with `(L, k)` expert ids to `(L, k, 1, out)`."""
        return mx.gather_mm(x.astype(self.weight.dtype), self.weight, rhs_indices=expert_idx)

    def grouped(self, x: mx.array) -> mx.array:
        """`(L, G, in)` through the G matrices of `(G, in, R)`: `(L, G, R)`."""
        rows = x.swapaxes(0, 1).astype(self.weight.dtype)
        return (rows @ self.weight).swapaxes(0, 1)

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return int(self.weight.shape[-1])

    def arrays(self) -> list[mx.array]:
        """The arrays that hold the weight."""
        return [self.weight]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A weight in MLX's affine 8-bit or mxfp4 layout, `[out, in]` or `[E, out, in]`."""

    weight: mx.array
    scales: mx.array
    biases: mx.array | None
    bits: int
    group_size: int
    mode: str

    def __call__(self, x: mx.array) -> mx.array:
        """`(L, in)` to `(L, out)`, in the type of `x`."""
        return mx.quantized_matmul(
            x,
            self.weight,
            self.scales,
            self.biases,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )

    def expert(self, x: mx.array, expert_idx: mx.array) -> mx.array:
        """`(L, 1 or k, 1, in)` with `(L, k)` expert ids to `(L, k, 1, out)`."""
        return mx.gather_qmm(
            x,
            self.weight,
            self.scales,
            self.biases,
            rhs_indices=expert_idx,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )

    def grouped(self, x: mx.array) -> mx.array:
        """`(L, G, in)` through G matrices, one above the other: `(L, G, out / G)`."""
        n_groups = x.shape[1]

        def cut(a: mx.array) -> mx.array:
            return a.reshape(n_groups, -1, a.shape[-1])

        out = mx.quantized_matmul(
            x.swapaxes(0, 1),
            cut(self.weight),
            cut(self.scales),
            None if self.biases is None else cut(self.biases),
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )
        return out.swapaxes(0, 1)

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return int(self.weight.shape[-2])

    def arrays(self) -> list[mx.array]:
        """The arrays that hold the weight."""
        return [a for a in (self.weight, self.scales, self.biases) if a is not None]


Linear = Dense | Packed | Blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Several products of one input; on the CPU they are a single matrix."""

    parts: tuple[Linear, ...]
    splits: tuple[int, ...]  # borders of the outputs inside a single matrix; () for many

    def __call__(self, x: mx.array) -> list[mx.array]:
        """`(L, in)` to one `(L, out_i)` for each product."""
        if len(self.parts) > 1:
            return [part(x) for part in self.parts]
        if not self.splits:
            return [self.parts[0](x)]
        return list(mx.split(self.parts[0](x), list(self.splits), axis=-1))

    def arrays(self) -> list[mx.array]:
        """The arrays that hold the weights."""
        return [a for part in self.parts for a in part.arrays()]


def fuse(parts: Sequence[Linear]) -> Fused:
    """Join products that share an input where all are dense of one type."""
    dense = [p for p in parts if isinstance(p, Dense)]
    one_type = len({p.weight.dtype for p in dense}) == 1
    if len(dense) < len(parts) or not one_type or len(parts) == 1:
        return Fused(parts=tuple(parts), splits=())
    widths = np.cumsum([p.n_out for p in dense])[:-1]
    weight = mx.concatenate([p.weight for p in dense], axis=-1)
    mx.eval(weight)
    return Fused(parts=(Dense(weight=weight),), splits=tuple(int(w) for w in widths))


def dense(values: NDArray[np.float32], dtype: mx.Dtype) -> Dense:
    """Make a weight from `(out, in)` or `(E, out, in)` float32 values."""
    weight = mx.array(np.ascontiguousarray(np.swapaxes(values, -1, -2))).astype(dtype)
    mx.eval(weight)
    return Dense(weight=weight)


def pack_q8_0(blocks: NDArray[np.uint8], shape: tuple[int, ...]) -> Packed:
    """Turn Q8_0 blocks into MLX's affine layout; d*q = d*(q+128) - 128*d, all exact.

    Args:
        blocks: `(n_blocks, 34)` bytes: a half `d`, then 32 signed bytes.
        shape: `(..., out, in)` of the weight.
    """
    d = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)[:, 0]
    codes = np.ascontiguousarray(blocks[:, 2:]) ^ np.uint8(0x80)
    groups = (*shape[:-1], shape[-1] // 32)
    packed = Packed(
        weight=mx.array(codes.reshape(*shape[:-1], shape[-1]).view(np.uint32)),
        scales=mx.array(d.reshape(groups)),
        biases=mx.array((d * np.float32(-128)).reshape(groups)),
        bits=8,
        group_size=32,
        mode="affine",
    )
    mx.eval(packed.arrays())
    return packed


def pack_mxfp4(blocks: NDArray[np.uint8], shape: tuple[int, ...]) -> Packed:
    """Turn MXFP4 blocks into MLX's mxfp4 layout (codes in order, eight a word).

    Args:
        blocks: `(n_blocks, 17)` bytes: the exponent, then 16 bytes; low nibbles are values
            0..15, high nibbles 16..31. ggml's exponent byte counts half steps of the doubled
            magnitudes, which is the plain E8M0 scale of the e2m1 values.
        shape: `(..., out, in)` of the weight.
    """
    codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=1)
    words = codes.reshape(-1, 8).astype(np.uint32)
    packed_words = (words << (4 * np.arange(8, dtype=np.uint32))).sum(axis=1, dtype=np.uint32)
    packed = Packed(
        weight=mx.array(packed_words.reshape(*shape[:-1], shape[-1] // 8)),
        scales=mx.array(
            np.ascontiguousarray(blocks[:, 0]).reshape(*shape[:-1], shape[-1] // 32)
        ),
        biases=None,
        bits=4,
        group_size=32,
        mode="mxfp4",
    )
    mx.eval(packed.arrays())
    return packed
