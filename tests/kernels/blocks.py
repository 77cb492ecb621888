"""Random valid blocks of every format: any bytes, with scales of a sensible size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants.base import format_named

_HALVES = {"Q8_0": (0,), "Q4_K": (0, 2), "Q2_K": (80, 82), "IQ2_XXS": (0,)}


def random_blocks(
    rng: np.random.Generator, name: str, n_rows: int, n_in: int
) -> NDArray[np.uint8]:
    """`(n_rows, row_bytes)` bytes whose values are finite and around one."""
    quant = format_named(name)
    if quant.block_values == 1:
        values = rng.standard_normal((n_rows, n_in)).astype(np.float32)
        return _plain(values, name)
    shape = (n_rows * (n_in // quant.block_values), quant.block_bytes)
    blocks = rng.integers(0, 256, shape, dtype=np.uint8)
    for at in _HALVES.get(name, ()):
        scale = rng.uniform(0.002, 0.02, shape[0]).astype(np.float16)
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(118, 126, shape[0])
    return blocks.reshape(n_rows, -1)


def _plain(values: NDArray[np.float32], name: str) -> NDArray[np.uint8]:
    if name == "F32":
        return values.view(np.uint8)
    if name == "F16":
        return values.astype(np.float16).view(np.uint8)
    return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)


def nmse(out: NDArray[np.float32], exact: NDArray[np.float64]) -> float:
    """Normalised mean square error; NaN and infinity count as infinite."""
    if not np.isfinite(out).all():
        return float("inf")
    return float(((out - exact) ** 2).sum() / max(float((exact**2).sum()), 1e-300))
