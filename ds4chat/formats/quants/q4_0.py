"""Q4_0: half d, 16 bytes of nibbles (low = values 0..15); value = d (q - 8)."""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, half, nibbles, register


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 18)` bytes to `(n, 32)` values."""
    codes = nibbles(blocks[:, 2:], 16).reshape(-1, 32)
    return half(blocks, 0) * (codes.astype(np.float32) - np.float32(8))


Q4_0 = register(
    QuantFormat(
        name="Q4_0", ggml_type=2, block_values=32, block_bytes=18, dequantize=dequantize
    )
)
