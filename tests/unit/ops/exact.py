"""Comparing arrays bit for bit, and arrays in and out of MLX."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


def single(values: Floats) -> mx.array:
    """Float32 on the device."""
    return mx.array(np.asarray(values, np.float32))


def double(array: mx.array) -> NDArray[np.float64]:
    """Float64 on the host."""
    return np.array(array).astype(np.float64)


def bits(array: Floats | mx.array) -> NDArray[np.uint32]:
    """The bits of float32 values; -0 and 0 differ."""
    return np.ascontiguousarray(np.array(array), dtype=np.float32).view(np.uint32)


def same_bits(a: Floats | mx.array, b: Floats | mx.array) -> bool:
    return bool(np.array_equal(bits(a), bits(b)))


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
