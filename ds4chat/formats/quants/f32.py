"""F32: one little-endian float a value."""

from __future__ import annotations

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, register


def dequantize(blocks: Blocks) -> Floats:
    """`(n, 4)` bytes to `(n, 1)` values."""
    return blocks.view("<f4")


F32 = register(
    QuantFormat(name="F32", ggml_type=0, block_values=1, block_bytes=4, dequantize=dequantize)
)
