"""Weights for made-up models: drawn by name, and stored in any block format.

Formats that the gguf package cannot encode (K-quants, IQ2_XXS) get random valid blocks whose
values have the wanted spread; the engine has to decode them, not to like them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

Array = NDArray[Any]
Rng = np.random.RandomState

_ENCODED = {Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.MXFP4, Type.BF16}


def rng_for(seed: int, name: str) -> Rng:
    """The generator of one tensor: independent of all others and of their order."""
    return np.random.RandomState(zlib.crc32(f"{seed}:{name}".encode("ascii")))


def round_bf16(values: Array) -> NDArray[np.float32]:
    """Nearest bfloat16, ties to even, as float32."""
    bits = values.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def fitting(wanted: Type, row: int) -> Type:
    """`wanted`, or the nearest format whose blocks fill rows of `row` values."""
    for candidate in (wanted, Type.Q8_0):
        if row % gguf.GGML_QUANT_SIZES[candidate][0] == 0:
            return candidate
    return Type.F16


def is_random(kind: Type) -> bool:
    """Whether the format gets random blocks instead of encoded values."""
    return kind in _BLOCKS


def encode(values: NDArray[np.float32], kind: Type) -> Array:
    """Values in a format that can be encoded; what `GGUFWriter.add_tensor` wants."""
    if kind == Type.F32:
        return values
    if kind == Type.F16:
        return values.astype(np.float16)
    assert kind in _ENCODED, kind
    encoded: Array = gguf.quants.quantize(values, kind)
    return encoded


def random_blocks(
    kind: Type, shape: tuple[int, ...], std: float, rng: Rng
) -> NDArray[np.uint8]:
    """Random blocks for a tensor of `shape`, values of spread `std` around zero."""
    values, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    n = int(np.prod(shape)) // values
    blocks = _BLOCKS[kind](n, std, rng)
    assert blocks.shape == (n, n_bytes), (kind, blocks.shape)
    return blocks.reshape(*shape[:-1], shape[-1] // values * n_bytes)


def _bytes(rng: Rng, n: int, width: int) -> NDArray[np.uint8]:
    return rng.randint(0, 256, (n, width)).astype(np.uint8)


def _halves(n: int, *values: float) -> NDArray[np.uint8]:
    one = np.array(values, dtype="<f2").view(np.uint8)
    return np.tile(one, (n, 1))


def _packed_scales(rng: Rng, n: int) -> tuple[NDArray[np.uint8], float]:
    """Twelve bytes of equal scales and minima (16..63), and the scales' rms."""
    scales = rng.randint(16, 64, (n, 8)).astype(np.uint8)
    low, high = scales[:, :4], scales[:, 4:]
    head = low | (high >> 4) << 6
    packed = np.concatenate([head, head, (high & 15) | (high & 15) << 4], axis=1)
    return packed, float(np.sqrt(np.mean(np.arange(16, 64.0) ** 2)))


def _q4_k(n: int, std: float, rng: Rng) -> NDArray[np.uint8]:
    packed, rms = _packed_scales(rng, n)
    d = std / (rms * np.sqrt((16**2 - 1) / 12))
    return np.concatenate([_halves(n, d, 7.5 * d), packed, _bytes(rng, n, 128)], axis=1)


def _q5_k(n: int, std: float, rng: Rng) -> NDArray[np.uint8]:
    packed, rms = _packed_scales(rng, n)
    d = std / (rms * np.sqrt((32**2 - 1) / 12))
    return np.concatenate([_halves(n, d, 15.5 * d), packed, _bytes(rng, n, 160)], axis=1)


def _q6_k(n: int, std: float, rng: Rng) -> NDArray[np.uint8]:
    scales = (rng.randint(16, 64, (n, 16)) * rng.choice([-1, 1], (n, 16))).astype(np.int8)
    d = std / (42.3 * np.sqrt((64**2 - 1) / 12))
    return np.concatenate([_bytes(rng, n, 192), scales.view(np.uint8), _halves(n, d)], axis=1)


def _q2_k(n: int, std: float, rng: Rng) -> NDArray[np.uint8]:
    scales = rng.randint(4, 16, (n, 16)).astype(np.uint8)
    d = std / (10.1 * np.sqrt((4**2 - 1) / 12))
    packed = scales | scales << 4
    return np.concatenate([packed, _bytes(rng, n, 64), _halves(n, d, 1.5 * d)], axis=1)


def _iq2_xxs(n: int, std: float, rng: Rng) -> NDArray[np.uint8]:
    groups = _bytes(rng, n * 8, 8)
    groups[:, 7] = (groups[:, 7] & 15) | rng.randint(4, 12, n * 8).astype(np.uint8) << 4
    d = std / (8.3 / 4 * 23.2)  # rms of 0.5 + scale, and of the grid's magnitudes
    return np.concatenate([_halves(n, d), groups.reshape(n, 64)], axis=1)


_BLOCKS: dict[Type, Callable[[int, float, Rng], NDArray[np.uint8]]] = {
    Type.Q4_K: _q4_k,
    Type.Q5_K: _q5_k,
    Type.Q6_K: _q6_k,
    Type.Q2_K: _q2_k,
    Type.IQ2_XXS: _iq2_xxs,
}
