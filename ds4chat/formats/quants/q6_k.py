"""Q6_K: 256 values in 16 groups of 16 with signed 8-bit scales; value = d s (q - 32).

128 bytes of low nibbles (in every 64 bytes: low nibbles, then high), 64 bytes of upper pairs
of bits (in every 32 bytes four planes, lowest first), 16 scales, half d.
"""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, half, nibbles, register

_PLANE = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 210)` bytes to `(n, 256)` values."""
    low = nibbles(blocks[:, :128], 64).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> _PLANE & 3
    codes = (low | high << 4).astype(np.float32).reshape(-1, 16, 16) - np.float32(32)
    scales = half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scales[:, :, None] * codes).reshape(-1, 256)


Q6_K = register(
    QuantFormat(
        name="Q6_K", ggml_type=14, block_values=256, block_bytes=210, dequantize=dequantize
    )
)
