"""What a block format is, and the table of those that can be decoded.

A format is one file: a decoder and one `register` call. Nothing else branches on a type id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[np.uint8]
Floats = NDArray[np.float32]
Decoder = Callable[[Blocks], Floats]

_CHUNK_VALUES = 1 << 19  # 2 MB of floats at a time keeps a decoder's temporaries small


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantFormat:
    """One block format.

    `dequantize` maps `(n, block_bytes)` uint8 to `(n, block_values)` float32, bit for bit as
    ggml's reference does. `is_integer` marks formats that hold ids and have no float value:
    their `dequantize` raises TypeError.
    """

    name: str
    ggml_type: int
    block_values: int
    block_bytes: int
    dequantize: Decoder
    is_integer: bool = False

    def row_bytes(self, n_values: int) -> int:
        """Bytes of a row of `n_values`; a whole number of blocks is the caller's duty."""
        return n_values // self.block_values * self.block_bytes


_formats: dict[int, QuantFormat] = {}
FORMATS: Mapping[int, QuantFormat] = MappingProxyType(_formats)
"""Every decodable format by ggml type id."""


def register(quant: QuantFormat) -> QuantFormat:
    """Add a format to `FORMATS` and return it."""
    assert quant.ggml_type not in _formats, quant.name
    _formats[quant.ggml_type] = quant
    return quant


def format_named(name: str) -> QuantFormat:
    """The format called `name` (as ggml spells it).

    Raises:
        KeyError: no such format.
    """
    for quant in _formats.values():
        if quant.name == name:
            return quant
    raise KeyError(name)


def decode(quant: QuantFormat, raw: Blocks, shape: tuple[int, ...]) -> Floats:
    """Decode `raw`, any shape of whole blocks, to float32 of `shape`, a chunk at a time."""
    blocks = raw.reshape(-1, quant.block_bytes)
    out = np.empty((blocks.shape[0], quant.block_values), dtype=np.float32)
    step = max(1, _CHUNK_VALUES // quant.block_values)
    for start in range(0, blocks.shape[0], step):
        part = blocks[start : start + step]
        # A damaged scale may be NaN or infinite; the caller judges values, not the decoder.
        with np.errstate(invalid="ignore", over="ignore"):
            out[start : start + step] = quant.dequantize(np.ascontiguousarray(part))
    return out.reshape(shape)


def half(blocks: Blocks, at: int) -> Floats:
    """The little-endian half at byte `at` of each block: `(n, 1)` float32."""
    return field(blocks, at, 2, "<f2").astype(np.float32)


def field(blocks: Blocks, at: int, n_bytes: int, dtype: str) -> NDArray[Any]:
    """Bytes `at .. at + n_bytes` of each block as `dtype`: `(n, n_bytes / itemsize)`."""
    return np.ascontiguousarray(blocks[:, at : at + n_bytes]).view(dtype)


def nibbles(codes: Blocks, group: int) -> Blocks:
    """Split bytes into 4-bit codes: in each `group` bytes the low nibbles come first.

    Args:
        codes: `(n, k * group)`.
        group: bytes in a group.

    Returns:
        `(n, k, 2, group)`.
    """
    grouped = codes.reshape(codes.shape[0], -1, 1, group)
    return np.concatenate([grouped & 0x0F, grouped >> 4], axis=2)
