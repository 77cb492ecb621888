"""Q2_K: 256 values in 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.

16 bytes of scale (low nibble) and minimum (high), 64 bytes of codes (in every 32 bytes four
planes of 32 values, lowest bits first), half d, half dmin; value = d s q - dmin m.
"""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, half, register

_PLANE = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 84)` bytes to `(n, 256)` values."""
    scales = half(blocks, 80) * (blocks[:, :16] & 15).astype(np.float32)
    minima = half(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    planes = blocks[:, 16:80].reshape(-1, 2, 1, 32) >> _PLANE & 3
    codes = planes.reshape(-1, 16, 16).astype(np.float32)
    return (scales[:, :, None] * codes - minima[:, :, None]).reshape(-1, 256)


Q2_K = register(
    QuantFormat(
        name="Q2_K", ggml_type=10, block_values=256, block_bytes=84, dequantize=dequantize
    )
)
