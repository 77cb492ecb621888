"""Q4_1: half d, half m, 16 bytes of nibbles (low = values 0..15); value = d q + m."""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, half, nibbles, register


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 20)` bytes to `(n, 32)` values."""
    codes = nibbles(blocks[:, 4:], 16).reshape(-1, 32).astype(np.float32)
    return half(blocks, 0) * codes + half(blocks, 2)


Q4_1 = register(
    QuantFormat(
        name="Q4_1", ggml_type=3, block_values=32, block_bytes=20, dequantize=dequantize
    )
)
