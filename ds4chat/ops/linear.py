"""Products with weights, one function whatever the storage format.

On the CPU a weight is float32, stored `[in, out]` so that `x @ w` reads it in order; several
products that share an input are one matrix. On a GPU weights stay in blocks: Q8_0 and MXFP4 in
MLX's own layouts (value for value), other formats as the file has them (`ops/blocks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
class Columns:
    """One of the products in `whole` `(L, N)`: `width` columns from `first` on."""

    whole: mx.array
    first: int
    width: int

    def alone(self) -> mx.array:
        """`(L, width)`."""
        if self.width == self.whole.shape[1]:
            return self.whole
        return self.whole[:, self.first : self.first + self.width]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Several products of one input; on the CPU they are a single matrix.

    `splits` are the borders of the outputs inside a single matrix. `places` says for each
    product its part, first column and width, where some parts hold several; () elsewhere.
    """

    parts: tuple[Linear, ...]
    splits: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...] = ()

    def __call__(self, x: mx.array) -> list[mx.array]:
        """`(L, in)` to one `(L, out_i)` for each product."""
        if self.places:
            return [columns.alone() for columns in self.columns(x)]
        if len(self.parts) > 1:
            return [part(x) for part in self.parts]
        if not self.splits:
            return [self.parts[0](x)]
        return list(mx.split(self.parts[0](x), list(self.splits), axis=-1))

    def columns(self, x: mx.array) -> list[Columns]:
        """The same, for kernels that take their columns out of several products."""
        if not self.places:
            return [all_columns(a) for a in self(x)]
        made = [part(x) for part in self.parts]
        return [Columns(whole=made[i], first=at, width=n) for i, at, n in self.places]

    def arrays(self) -> list[mx.array]:
        """The arrays that hold the weights."""
        return [a for part in self.parts for a in part.arrays()]


def all_columns(array: mx.array) -> Columns:
    """An array `(L, N)` that is one product."""
    return Columns(whole=array, first=0, width=int(array.shape[1]))


def fuse(parts: Sequence[Linear], *, are_joined: bool = False) -> Fused:
    """Join products that share an input: dense ones of one type, neighbouring islands.

    `are_joined`: all neighbours of one format; only `Fused.columns` gives them without copies.
    """
    dense = [p for p in parts if isinstance(p, Dense)]
    one_type = len({p.weight.dtype for p in dense}) == 1
    if len(dense) < len(parts) or not one_type or len(parts) == 1:
        return _join_blocks(parts, only_islands=not are_joined)
    widths = np.cumsum([p.n_out for p in dense])[:-1]
    weight = mx.concatenate([p.weight for p in dense], axis=-1)
    mx.eval(weight)
    return Fused(parts=(Dense(weight=weight),), splits=tuple(int(w) for w in widths))


def _join_blocks(parts: Sequence[Linear], *, only_islands: bool) -> Fused:
    """Neighbouring blocks of one format, or those multiplied in float32, in one weight."""
    joined: list[Linear] = []
    places = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and _are_alike(last, part, only_islands=only_islands):
            places.append((len(joined) - 1, last.n_out, part.n_out))
            joined[-1] = _below(last, part)
        else:
            places.append((len(joined), 0, part.n_out))
            joined.append(part)
    if len(joined) == len(parts):
        return Fused(parts=tuple(parts), splits=())
    mx.eval([part.arrays() for part in joined])
    return Fused(parts=tuple(joined), splits=(), places=tuple(places))


def _are_alike(one: Linear, two: Linear, *, only_islands: bool) -> bool:
    if not (isinstance(one, Blocks) and isinstance(two, Blocks)):
        return False
    # MLX's types compare with types alone
    types = [None if b.out_dtype is None else str(b.out_dtype) for b in (one, two)]
    return (
        types[0] == types[1]
        and (types[0] == str(mx.float32) or not only_islands)
        and one.quant is two.quant
        and one.raw.shape[1:] == two.raw.shape[1:]
    )


def _below(one: Linear, two: Linear) -> Linear:
    assert isinstance(one, Blocks)
    assert isinstance(two, Blocks)
    return replace(one, raw=mx.concatenate([one.raw, two.raw], axis=0))


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
