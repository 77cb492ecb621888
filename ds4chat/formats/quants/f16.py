"""F16: one IEEE half a value."""

from __future__ import annotations

import numpy as np

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, register


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 2)` bytes to `(n, 1)` values."""
    return blocks.view("<f2").astype(np.float32)


F16 = register(
    QuantFormat(name="F16", ggml_type=1, block_values=1, block_bytes=2, dequantize=dequantize)
)
