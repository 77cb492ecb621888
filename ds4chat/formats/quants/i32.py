"""I32: ids, such as the expert table of a hash-routed layer. They have no float value."""

from __future__ import annotations

from ds4chat.formats.quants.base import Blocks, Floats, QuantFormat, register


def dequantize(blocks: Blocks) -> Floats:
    """Refuse: ids must be read as integers (`GgufFile.integers`)."""
    raise TypeError(f"I32 holds ids, not floats ({blocks.shape[0]} asked for)")


I32 = register(
    QuantFormat(
        name="I32",
        ggml_type=26,
        block_values=1,
        block_bytes=4,
        dequantize=dequantize,
        is_integer=True,
    )
)
