"""Block formats decoded by MLX, on any device: the values of `formats/quants`, bit for bit.

What multiplies blocks without a kernel decodes them here first, and kernels are tested against
it. Where a device flushes subnormal floats to zero, so do scales that small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import mlx.core as mx
import numpy as np

from ds4chat.formats.quants import iq2_xxs, mxfp4

Unpack = Callable[[mx.array], mx.array]
"""`(..., n, block_bytes)` uint8 to `(..., n, block_values)` float32."""


def unpack(raw: mx.array, name: str, block_bytes: int) -> mx.array:
    """Rows of blocks `(..., row_bytes)` uint8 to values `(..., row_values)` float32."""
    blocks = raw.reshape(*raw.shape[:-1], -1, block_bytes)
    return UNPACKERS[name](blocks).reshape(*raw.shape[:-1], -1)


def _half(blocks: mx.array, at: int) -> mx.array:
    """The half at byte `at` of each block, `(..., n, 1)` float32."""
    return mx.contiguous(blocks[..., at : at + 2]).view(mx.float16).astype(mx.float32)


def _float(codes: mx.array) -> mx.array:
    return codes.astype(mx.float32)


def _nibbles(codes: mx.array, group: int) -> mx.array:
    """Low nibbles, then high, of each `group` bytes: `(..., n, k, 2 * group)`."""
    grouped = codes.reshape(*codes.shape[:-1], -1, group)
    return mx.concatenate([grouped & 15, grouped >> 4], axis=-1)


def _planes(codes: mx.array, group: int) -> mx.array:
    """Four planes of two bits of each `group` bytes: `(..., n, k, 4, group)`."""
    grouped = codes.reshape(*codes.shape[:-1], -1, 1, group)
    return (grouped >> mx.array([0, 2, 4, 6], dtype=mx.uint8).reshape(4, 1)) & 3


def _q8_0(blocks: mx.array) -> mx.array:
    codes = mx.contiguous(blocks[..., 2:]).view(mx.int8)
    return _half(blocks, 0) * _float(codes)


def _q4_0(blocks: mx.array) -> mx.array:
    codes = _nibbles(blocks[..., 2:], 16).squeeze(-2)
    return _half(blocks, 0) * (_float(codes) - 8.0)


def _q4_1(blocks: mx.array) -> mx.array:
    codes = _nibbles(blocks[..., 4:], 16).squeeze(-2)
    return _half(blocks, 0) * _float(codes) + _half(blocks, 2)


def _group_scales(blocks: mx.array) -> tuple[mx.array, mx.array]:
    """Scales and minima of the 8 groups of a Q4_K or Q5_K block, `(..., n, 8, 1)`."""
    low, mid, high = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = mx.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=-1)
    minima = mx.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=-1)
    return (
        (_half(blocks, 0) * _float(scales))[..., None],
        (_half(blocks, 2) * _float(minima))[..., None],
    )


def _q4_k(blocks: mx.array) -> mx.array:
    scales, minima = _group_scales(blocks)
    codes = _nibbles(blocks[..., 16:], 32).reshape(*blocks.shape[:-1], 8, 32)
    return (scales * _float(codes) - minima).flatten(-2)


def _q5_k(blocks: mx.array) -> mx.array:
    scales, minima = _group_scales(blocks)
    shifts = mx.arange(8, dtype=mx.uint8).reshape(8, 1)
    top = ((blocks[..., None, 16:48] >> shifts) & 1) << 4
    codes = _nibbles(blocks[..., 48:], 32).reshape(*blocks.shape[:-1], 8, 32) | top
    return (scales * _float(codes) - minima).flatten(-2)


def _q2_k(blocks: mx.array) -> mx.array:
    scales = (_half(blocks, 80) * _float(blocks[..., :16] & 15))[..., None]
    minima = (_half(blocks, 82) * _float(blocks[..., :16] >> 4))[..., None]
    codes = _planes(blocks[..., 16:80], 32).reshape(*blocks.shape[:-1], 16, 16)
    return (scales * _float(codes) - minima).flatten(-2)


def _q6_k(blocks: mx.array) -> mx.array:
    low = _nibbles(blocks[..., :128], 64).reshape(*blocks.shape[:-1], 2, 4, 32)
    codes = low | (_planes(blocks[..., 128:192], 32) << 4)
    values = _float(codes).reshape(*blocks.shape[:-1], 16, 16) - 32.0
    scales = _float(mx.contiguous(blocks[..., 192:208]).view(mx.int8))
    return ((_half(blocks, 208) * scales)[..., None] * values).flatten(-2)


@cache
def _mxfp4_values() -> mx.array:
    """The 16 doubled values of a code; there is no negative zero."""
    magnitudes = 2 * mxfp4.MAGNITUDES
    negative = np.where(magnitudes == 0, magnitudes, -magnitudes)
    return mx.array(np.concatenate([magnitudes, negative]).astype(np.float32))


def _mxfp4(blocks: mx.array) -> mx.array:
    exponents = blocks[..., :1].astype(mx.uint32)
    small = mx.left_shift(mx.array(0x0020_0000, mx.uint32), mx.minimum(exponents, 1))
    normal = mx.left_shift(mx.maximum(exponents, 1) - 1, 23)
    scales = mx.where(exponents < 2, small, normal).view(mx.float32)
    return scales * _mxfp4_values()[_nibbles(blocks[..., 1:], 16).squeeze(-2)]


@cache
def _iq2_tables() -> tuple[mx.array, mx.array]:
    """Magnitudes `(256, 8)` and signs `(128, 8)`, float32."""
    return mx.array(iq2_xxs.GRID.astype(np.float32)), mx.array(iq2_xxs.SIGNS.astype(np.float32))


def _iq2_xxs(blocks: mx.array) -> mx.array:
    magnitudes, signs = _iq2_tables()
    groups = blocks[..., 2:].reshape(*blocks.shape[:-1], 8, 8)
    words = mx.contiguous(groups[..., 4:]).view(mx.uint32)
    scales = (_half(blocks, 0)[..., None] * (_float(words >> 28) + 0.5)) * 0.25
    shifts = mx.array([0, 7, 14, 21], dtype=mx.uint32)
    values = magnitudes[groups[..., :4]] * signs[(words >> shifts) & 127]
    return (scales * values.flatten(-2)).flatten(-2)


def _as(dtype: mx.Dtype) -> Unpack:
    return lambda blocks: mx.contiguous(blocks).view(dtype).astype(mx.float32)


UNPACKERS: Mapping[str, Unpack] = MappingProxyType(
    {
        "F32": _as(mx.float32),
        "F16": _as(mx.float16),
        "BF16": _as(mx.bfloat16),
        "Q8_0": _q8_0,
        "Q4_0": _q4_0,
        "Q4_1": _q4_1,
        "Q2_K": _q2_k,
        "Q4_K": _q4_k,
        "Q5_K": _q5_k,
        "Q6_K": _q6_k,
        "IQ2_XXS": _iq2_xxs,
        "MXFP4": _mxfp4,
    }
)
"""Every format that holds floats."""
