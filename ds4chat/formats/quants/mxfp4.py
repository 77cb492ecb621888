"""MXFP4: one E8M0 exponent byte e, 16 bytes of FP4 codes (low nibbles = values 0..15).

value = 2^(e - 127) x one of 0 .5 1 1.5 2 3 4 6 (bit 3 of the code is the sign). ggml keeps
doubled magnitudes and half the scale, which gives the same floats.
"""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, nibbles, register

MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
_DOUBLED = np.concatenate([2 * MAGNITUDES, -2 * MAGNITUDES])
_DOUBLED[8] = 0.0  # ggml's table of integers has no negative zero


def half_scale(exponents: Blocks) -> Floats:
    """2^(e - 128) for E8M0 codes; e = 0 and 1 give subnormal floats."""
    codes = exponents.astype(np.uint32)
    small = np.uint32(0x0020_0000) << np.minimum(codes, 1)
    normal = (np.maximum(codes, 1) - np.uint32(1)) << np.uint32(23)
    bits = np.where(codes < 2, small, normal).astype(np.uint32)
    return bits.view(np.float32)


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 17)` bytes to `(n, 32)` values."""
    codes = nibbles(blocks[:, 1:], 16).reshape(-1, 32)
    values: Floats = half_scale(np.ascontiguousarray(blocks[:, :1])) * _DOUBLED[codes]
    return values


MXFP4 = register(
    QuantFormat(
        name="MXFP4", ggml_type=39, block_values=32, block_bytes=17, dequantize=dequantize
    )
)
