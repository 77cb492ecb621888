"""Weights out of a GGUF file, one tensor at a time, in the form that a backend multiplies.

What stays in blocks is streamed to the device in chunks and never lies whole in host memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.gguf import GgufFile, TensorEntry
from ds4chat.formats.stream import TensorStream
from ds4chat.ops.blocks import Blocks, upload
from ds4chat.ops.dispatch import current
from ds4chat.ops.linear import Dense, Fused, Linear, Packed, dense, fuse, pack_mxfp4, pack_q8_0
from ds4chat.ops.qmatmul import has_kernel

OnBytes = Callable[[int], None]
"""Called with the number of file bytes just consumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packing:
    """One of MLX's own layouts, and how many bytes each byte of the file then takes."""

    pack: Callable[[NDArray[np.uint8], tuple[int, ...]], Packed]
    growth: float


_PACKINGS = {
    "Q8_0": _Packing(pack=pack_q8_0, growth=40 / 34),  # scale and bias are floats
    "MXFP4": _Packing(pack=pack_mxfp4, growth=1.0),
}
_EMBEDDING = "token_embd.weight"
_FLOAT_TYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How a backend keeps weights.

    `keeps_blocks`: matrices stay as packed as in the file, but for float32 islands; else
    everything is unpacked to float32. `dtype` is the type of activations.
    """

    dtype: mx.Dtype
    keeps_blocks: bool

    def resident_bytes(self, entry: TensorEntry) -> int:
        """About how much memory a tensor takes once it is read."""
        name = entry.quant.name if entry.quant is not None else ""
        if not self.keeps_blocks or not name:
            return math.prod(entry.shape) * 4
        if name in _PACKINGS and current().is_reference:
            return math.ceil(entry.n_bytes * _PACKINGS[name].growth)
        is_widened = name in ("F16", "BF16") and current().is_reference
        is_island = is_widened and entry.name != _EMBEDDING
        return entry.n_bytes * (2 if is_island else 1)


class WeightSource:
    """Reads bound tensors by their canonical name. Reports bytes as it goes.

    A context manager: `close` ends the threads that read ahead.

    `spoiled` names the tensors read so far that hold NaN or infinity.
    """

    def __init__(
        self,
        gguf: GgufFile,
        entries: Mapping[str, TensorEntry],
        storage: Storage,
        on_bytes: OnBytes,
    ) -> None:
        self._gguf = gguf
        self._entries = entries
        self._on_bytes = on_bytes
        self._read: set[str] = set()
        self.storage = storage
        self.spoiled: list[str] = []
        self._stream = TensorStream(gguf) if storage.keeps_blocks else None

    def close(self) -> None:
        """Let go of threads and files."""
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        """NumPy shape of a tensor."""
        return self._entries[name].shape

    def values(self, name: str) -> NDArray[np.float32]:
        """A tensor as float32; what is not finite is NaN and `spoiled` names the tensor.

        No clamp, sigmoid or maximum hides a NaN, as it would an infinity: so nothing is
        answered with it (the turn ends as `nonfinite`).
        """
        entry = self._entries[name]
        values = self._gguf.floats(entry)
        with np.errstate(invalid="ignore"):
            is_finite = np.isfinite(values.sum(dtype=np.float64))
        if not is_finite:
            values = np.where(np.isfinite(values), values, np.float32(np.nan))
            self._spoil(name)
        self._count(name)
        return values

    def vector(self, name: str) -> mx.array:
        """A small tensor as float32 on the device."""
        return mx.array(self.values(name).reshape(-1))

    def matrix(self, name: str) -> mx.array:
        """A tensor as float32 on the device, in NumPy shape."""
        blocks = self._blocks(name)
        return mx.array(self.values(name)) if blocks is None else blocks.values()

    def embedding(self, name: str = _EMBEDDING) -> mx.array:
        """Rows to pick from, on a GPU in their own float type where they have one."""
        quant = self._entries[name].quant
        blocks = self._blocks(name) if quant is None or quant.name in _FLOAT_TYPES else None
        if blocks is None:
            return self.matrix(name)
        return blocks.raw.view(_FLOAT_TYPES[blocks.quant.name])

    def table(self, name: str) -> mx.array:
        """An integer tensor as int32 on the device."""
        entry = self._entries[name]
        ids = self._gguf.integers(entry)
        self._count(name)
        return mx.array(ids)

    def linear(self, name: str, *, is_island: bool = False) -> Linear:
        """A weight `[out, in]` or `[E, out, in]`; islands are multiplied in float32."""
        packed = None if is_island else self._packed(name)
        if packed is not None:
            return packed
        blocks = self._blocks(name)
        if blocks is None:
            return dense(self.values(name), mx.float32)
        if is_island and not current().is_reference and has_kernel(blocks.quant, blocks.n_in):
            return replace(blocks, out_dtype=mx.float32)
        if not is_island and blocks.quant.name != "F32":
            return blocks
        weight = mx.contiguous(blocks.values().swapaxes(-1, -2))
        mx.eval(weight)
        return Dense(weight=weight)

    def fused(
        self,
        names: Sequence[str],
        islands: frozenset[str] = frozenset(),
        *,
        are_joined: bool = False,
    ) -> Fused:
        """Several weights with one input; `are_joined` as for `fuse`."""
        parts = [self.linear(n, is_island=n in islands) for n in names]
        return fuse(parts, are_joined=are_joined)

    def grouped(self, name: str, n_groups: int) -> Linear:
        """A weight `[G*R, in]` for `Linear.grouped`."""
        quant = self._entries[name].quant
        if self.storage.keeps_blocks and quant is not None and quant.name != "F32":
            return self.linear(name)
        values = self.values(name)
        return dense(values.reshape(n_groups, -1, values.shape[-1]), mx.float32)

    def stacked_experts(self, names: Sequence[str], shared: Sequence[str] = ()) -> Dense:
        """Expert stacks side by side as one `(E, in, sum of out)`, the shared one last."""
        values = np.concatenate([self.values(n) for n in names], axis=1)
        if shared:
            extra = np.concatenate([self.values(n) for n in shared], axis=0)
            values = np.concatenate([values, extra[None]], axis=0)
        return dense(values, mx.float32)

    def _packed(self, name: str) -> Linear | None:
        entry = self._entries[name]
        quant = entry.quant
        if not self.storage.keeps_blocks or quant is None or quant.name not in _PACKINGS:
            return None
        if not current().is_reference:
            return None  # our kernels multiply the file's own blocks
        blocks = self._gguf.raw(entry).reshape(-1, quant.block_bytes)
        with np.errstate(invalid="ignore", over="ignore"):
            packed = _PACKINGS[quant.name].pack(blocks, entry.shape)
        if mx.issubdtype(packed.scales.dtype, mx.floating) and not bool(
            mx.isfinite(packed.scales).all()
        ):
            self._spoil(name)
        self._count(name)
        return packed

    def _blocks(self, name: str) -> Blocks | None:
        """The tensor's bytes on the device; None where everything is unpacked.

        A scale that is not finite becomes NaN, as in `values`.
        """
        entry = self._entries[name]
        if self._stream is None or entry.quant is None:
            return None
        raw = upload(self._stream.chunks(entry)).reshape(*entry.shape[:-1], -1)
        blocks = Blocks(raw=raw, quant=entry.quant)
        if not blocks.is_finite():
            blocks = blocks.with_nan()
            self._spoil(name)
        self._count(name)
        return blocks

    def _spoil(self, name: str) -> None:
        stored = self._entries[name].name
        if stored not in self.spoiled:
            self.spoiled.append(stored)

    def _count(self, name: str) -> None:
        """Report a tensor's bytes the first time that it is read."""
        if name not in self._read:
            self._read.add(name)
            self._on_bytes(self._entries[name].n_bytes)
