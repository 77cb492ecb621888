"""BF16: the upper half of a float."""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, register


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 2)` bytes to `(n, 1)` values."""
    return (blocks.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


BF16 = register(
    QuantFormat(name="BF16", ggml_type=30, block_values=1, block_bytes=2, dequantize=dequantize)
)
