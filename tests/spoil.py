"""Write NaN or infinity into the weights of a GGUF file, whatever their block format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ds4chat.formats.gguf import GgufFile

# Where the first scale of a block stands, and how its number is written.
_SCALES: dict[str, tuple[int, str]] = {
    "F32": (0, "<f4"),
    "F16": (0, "<f2"),
    "BF16": (0, "bf16"),
    "Q8_0": (0, "<f2"),
    "Q4_0": (0, "<f2"),
    "Q4_1": (0, "<f2"),
    "Q4_K": (0, "<f2"),
    "Q5_K": (0, "<f2"),
    "Q2_K": (80, "<f2"),
    "Q6_K": (208, "<f2"),
    "IQ2_XXS": (0, "<f2"),
    "MXFP4": (0, "e8m0"),
}


def spoil(path: Path, tensor: str, value: float, *, row: int = 0, n_blocks: int = 1) -> str:
    """Put `value` into the first `n_blocks` blocks of a row (0: all); return the format's name.

    In F32, F16 and BF16 a block is one number, in the others it has one scale for many.
    """
    with GgufFile.open(path) as gguf:
        entry = gguf.tensors[tensor]
    assert entry.quant is not None
    kind = entry.quant
    per_row = entry.shape[-1] // kind.block_values
    at, dtype = _SCALES[kind.name]
    number = _bytes_of(value, dtype)
    with path.open("r+b") as file:
        for block in range(n_blocks or per_row):
            file.seek(entry.offset + (row * per_row + block) * kind.block_bytes + at)
            file.write(number)
    return kind.name


def _bytes_of(value: float, dtype: str) -> bytes:
    if dtype == "e8m0":  # an exponent alone: 255 is its NaN, or its largest scale
        return b"\xff"
    if dtype == "bf16":
        return np.array(value, "<f4").tobytes()[2:]
    return np.array(value, dtype).tobytes()
