"""Q5_K: Q4_K with a fifth bit: 32 bytes whose bit g belongs to group g.

half d, half dmin, 12 bytes of scales and minima, 32 bytes of fifth bits, 128 bytes of nibbles.
"""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, nibbles, register
from ds4chat.formats.quants.q4_k import group_scales

_GROUP = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 176)` bytes to `(n, 256)` values."""
    scales, minima = group_scales(blocks)
    top = (blocks[:, None, 16:48] >> _GROUP & 1) << 4
    codes = (nibbles(blocks[:, 48:], 32).reshape(-1, 8, 32) | top).astype(np.float32)
    return (scales * codes - minima).reshape(-1, 256)


Q5_K = register(
    QuantFormat(
        name="Q5_K", ggml_type=13, block_values=256, block_bytes=176, dequantize=dequantize
    )
)
