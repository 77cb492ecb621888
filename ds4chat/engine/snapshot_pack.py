"""Rows that went through the FP8 or FP4 round trip, in the bits that they really need.

A row after the round trip is code times a power of two for each block. The scale is found
again from the largest value of the block, so the codes need not be kept anywhere else; a row
that does not come back bit for bit (a broken model may compute NaN) is not packed at all.
Formulas of the round trips: `spec/architecture.md` section 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.safetensors import Tensor
from ds4chat.ops.quantsim import FP4_BLOCK, FP8_BLOCK

Bits = NDArray[Any]
"""float32, or uint16 that holds bfloat16."""

_BIAS = 127
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _e4m3_values() -> NDArray[np.float32]:
    """The 256 values of e4m3 (no infinity; 0x7F and 0xFF are NaN)."""
    code = np.arange(256)
    field, fraction = (code >> 3) & 15, code & 7
    size = np.where(field == 0, fraction * 2.0**-9, (1 + fraction / 8) * 2.0 ** (field - 7.0))
    size = np.where((code & 127) == 127, np.nan, size)
    return np.where(code & 128, -size, size).astype(np.float32)


def _codes_of_half(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Code of every float16 bit pattern; 0x7F where the value has none."""
    table = np.full(1 << 16, 0x7F, np.uint8)
    finite = ~np.isnan(values)
    table[values[finite].astype(np.float16).view(np.uint16)] = np.flatnonzero(finite)
    return table


E4M3 = _e4m3_values()
_E4M3_CODE = _codes_of_half(E4M3)
_E2M1_VALUE = np.array([*_E2M1, *(-v for v in _E2M1)], np.float32)
_E2M1_CODE = np.zeros(13, np.uint8)
_E2M1_CODE[[int(2 * v) for v in _E2M1]] = np.arange(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRule:
    """How the rows of one state array were rounded.

    `rope_dim`: trailing channels that were not; `is_index`: FP4 blocks of 32, else FP8 of 64.
    """

    rope_dim: int = 0
    is_index: bool = False


def pack(name: str, rows: Bits, rule: PackRule | None) -> dict[str, Tensor]:
    """One state array as tensors of a file: packed where that is exact, else as it is."""
    if rule is not None:
        with np.errstate(all="ignore"):  # what does not fit is found by comparing
            packed = _pack_fp4(name, rows) if rule.is_index else _pack_fp8(name, rows, rule)
            back = unpack(packed, name, rows.dtype)
        if np.array_equal(_unsigned(back), _unsigned(rows)):
            return packed
    return {name: plain(rows)}


def unpack(tensors: Mapping[str, Tensor], name: str, dtype: np.dtype[Any]) -> Bits:
    """The state array `name` as `pack` was given it.

    Raises:
        KeyError: a tensor is missing.
        ValueError: tensors do not fit together.
    """
    if name in tensors:
        return tensors[name].data
    if f"{name}.fp4" in tensors:
        pairs = tensors[f"{name}.fp4"].data
        codes = np.stack([pairs & 15, pairs >> 4], axis=-1)
        codes = codes.reshape(len(pairs), 2 * pairs.shape[1])
        return _scaled(_E2M1_VALUE[codes], tensors[f"{name}.e8m0"].data, FP4_BLOCK)
    values = E4M3[tensors[f"{name}.fp8"].data]
    rounded = _scaled(values, tensors[f"{name}.e8m0"].data, FP8_BLOCK)
    if dtype == np.uint16:
        rounded = (rounded.view(np.uint32) >> 16).astype(np.uint16)
    return np.concatenate([rounded, tensors[f"{name}.rope"].data], axis=1)


def plain(values: Bits) -> Tensor:
    """An array as it is: float32, bfloat16 bits or int32."""
    kinds = {"float32": "F32", "uint16": "BF16", "int32": "I32"}
    return Tensor(dtype=kinds[values.dtype.name], data=values)


def _pack_fp8(name: str, rows: Bits, rule: PackRule) -> dict[str, Tensor]:
    split = rows.shape[1] - rule.rope_dim
    values = _floats(rows[:, :split])
    exponents = _exponents(values, FP8_BLOCK, 0.875, 9)  # 448 = 0.875 * 2^9
    halves = _scaled(values, 2 * _BIAS - exponents, FP8_BLOCK).astype(np.float16)
    return {
        f"{name}.fp8": Tensor(dtype="F8_E4M3", data=_E4M3_CODE[halves.view(np.uint16)]),
        f"{name}.e8m0": Tensor(dtype="F8_E8M0", data=exponents),
        f"{name}.rope": plain(rows[:, split:]),
    }


def _pack_fp4(name: str, rows: Bits) -> dict[str, Tensor]:
    values = _floats(rows)
    exponents = _exponents(values, FP4_BLOCK, 0.75, 3)  # 6 = 0.75 * 2^3
    doubled = 2 * np.abs(_scaled(values, 2 * _BIAS - exponents, FP4_BLOCK))
    codes = _E2M1_CODE[np.clip(np.nan_to_num(doubled), 0, 12).astype(np.uint8)]
    codes = codes | (np.signbit(values).astype(np.uint8) << 3)
    pairs = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return {
        f"{name}.fp4": Tensor(dtype="U8", data=pairs),
        f"{name}.e8m0": Tensor(dtype="F8_E8M0", data=exponents),
    }


def _exponents(
    values: NDArray[np.float32], block: int, top: float, power: int
) -> NDArray[np.uint8]:
    """`(rows, blocks)` biased exponents of the least scale that reaches `top * 2^power`."""
    sizes = np.nan_to_num(np.abs(_blocks(values, block)).max(axis=-1))
    fraction, exponent = np.frexp(sizes)
    scale = np.where(sizes == 0, 0, exponent - power + (fraction > top))
    return (np.clip(scale, -_BIAS, _BIAS) + _BIAS).astype(np.uint8)


def _scaled(
    values: NDArray[np.float32], exponents: NDArray[np.uint8], block: int
) -> NDArray[np.float32]:
    """Values times `2^(exponent - 127)` of their block, float32."""
    if values.ndim != 2 or exponents.shape != (len(values), values.shape[1] // block):
        raise ValueError(f"exponents of shape {exponents.shape} for rows of {values.shape}")
    scale = np.ldexp(np.float32(1), exponents.astype(np.int32) - _BIAS).astype(np.float32)
    return (_blocks(values, block) * scale[..., None]).reshape(values.shape)


def _blocks(values: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    return values.reshape(len(values), values.shape[1] // block, block)


def _floats(rows: Bits) -> NDArray[np.float32]:
    if rows.dtype == np.uint16:
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(rows, np.float32)


def _unsigned(values: Bits) -> Bits:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
