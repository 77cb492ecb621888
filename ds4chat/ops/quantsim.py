"""The FP8 and FP4 round trips that the checkpoint was trained with (architecture.md section 8).

Scales are powers of two found in the exponent bits, so every step but the rounding is exact.
"""

from __future__ import annotations

import mlx.core as mx

FP8_BLOCK = 64
FP4_BLOCK = 32
_FP8_FLOOR = 1e-4
_FP4_FLOOR = 6.0 * 2.0**-126


def _power_of_two(amax: mx.array, mantissa: int, exponent: int) -> mx.array:
    """`2^ceil(log2(amax / top))` where `top` = (1 + mantissa / 2^23) * 2^exponent.

    Adding what the mantissa lacks to 2^23 - 1 carries into the exponent exactly when `amax` is
    above a power of two times `top`.
    """
    bits = amax.view(mx.uint32)
    field = mx.right_shift(bits + (0x7FFFFF - mantissa), 23) - exponent
    return mx.left_shift(field, 23).view(mx.float32)


def fp8_round_trip(x: mx.array) -> mx.array:
    """Round `(..., n)` float32 to e4m3, a power-of-two scale per 64 (64 divides n)."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // FP8_BLOCK, FP8_BLOCK)
    amax = mx.maximum(mx.max(mx.abs(blocks), axis=-1, keepdims=True), _FP8_FLOOR)
    scale = _power_of_two(amax, 0x600000, 8)  # 448 = 1.75 * 2^8
    rounded = mx.from_fp8(mx.to_fp8(blocks / scale), mx.float32) * scale
    return rounded.reshape(x.shape)


def fp4_round_trip(x: mx.array) -> mx.array:
    """Round `(..., n)` float32 to e2m1, a power-of-two scale per 32 (32 divides n)."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // FP4_BLOCK, FP4_BLOCK)
    amax = mx.maximum(mx.max(mx.abs(blocks), axis=-1, keepdims=True), _FP4_FLOOR)
    scale = _power_of_two(amax, 0x400000, 2)  # 6 = 1.5 * 2^2
    value = blocks / scale
    size = mx.abs(value)
    step = mx.where(size < 2.0, 0.5, mx.where(size < 4.0, 1.0, 2.0))
    rounded = mx.round(value / step) * step * scale
    return rounded.reshape(x.shape)


def hadamard(x: mx.array) -> mx.array:
    """Multiply `(..., n)` float32 by the normalised Hadamard matrix; n is a power of two."""
    return mx.hadamard_transform(x, scale=x.shape[-1] ** -0.5)


def kv_round_trip(row: mx.array, rope_dim: int) -> mx.array:
    """FP8 for all channels of a KV row but the last `rope_dim`."""
    split = row.shape[-1] - rope_dim
    return mx.concatenate([fp8_round_trip(row[..., :split]), row[..., split:]], axis=-1)


def index_round_trip(row: mx.array) -> mx.array:
    """Hadamard and FP4 for indexer queries and rows."""
    return fp4_round_trip(hadamard(row))
