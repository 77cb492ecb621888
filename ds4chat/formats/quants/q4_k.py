"""Q4_K: 256 values in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum.

half d, half dmin, 12 bytes of packed scales and minima, 128 bytes of nibbles (in every 32
bytes the low nibbles are one group, the high nibbles the next); value = d s q - dmin m.
"""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, half, nibbles, register


def group_scales(blocks: Blocks) -> tuple[Floats, Floats]:
    """`(n, 8, 1)` scales d s and minima dmin m of a Q4_K or Q5_K block.

    Of the 12 bytes at 4: the low six bits of byte j are s_j, of byte 4 + j m_j (j < 4); byte
    8 + j holds the low nibbles of s_{4+j} (low) and m_{4+j} (high), whose upper two bits top
    bytes j and 4 + j.
    """
    low, mid, high = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=1)
    return (
        (half(blocks, 0) * scales.astype(np.float32))[:, :, None],
        (half(blocks, 2) * minima.astype(np.float32))[:, :, None],
    )


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 144)` bytes to `(n, 256)` values."""
    scales, minima = group_scales(blocks)
    codes = nibbles(blocks[:, 16:], 32).reshape(-1, 8, 32).astype(np.float32)
    return (scales * codes - minima).reshape(-1, 256)


Q4_K = register(
    QuantFormat(
        name="Q4_K", ggml_type=12, block_values=256, block_bytes=144, dequantize=dequantize
    )
)
