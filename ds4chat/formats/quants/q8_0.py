"""Q8_0: half d, 32 signed bytes; value = d q."""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, half, register


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 34)` bytes to `(n, 32)` values."""
    return half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


Q8_0 = register(
    QuantFormat(
        name="Q8_0", ggml_type=8, block_values=32, block_bytes=34, dequantize=dequantize
    )
)
