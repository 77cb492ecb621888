"""Round trips of the stored formats, as straight-through functions.

Formulas: FP8 of key/value rows and Hadamard + FP4 of indexer rows as in the V4 reference
inference code; Q8_0 as in ggml (`d = amax / 127` stored as half, codes rounded).
"""

from __future__ import annotations

import torch
from torch import Tensor

FP8_MAX = 448.0
FP4_MAX = 6.0


def _pow2_ceil(x: Tensor) -> Tensor:
    """Smallest power of two >= x, for positive normal float32, exactly (bit arithmetic)."""
    bits = x.view(torch.int32)
    up = ((bits & 0x007FFFFF) != 0).to(torch.int32)
    return (((bits >> 23) + up) << 23).view(torch.float32)


def fp8_round(rows: Tensor) -> Tensor:
    """E4M3 round trip of `(..., c)` float32 in blocks of 64 with power-of-two scales."""
    x = rows.float().unflatten(-1, (-1, 64))
    amax = x.abs().amax(-1, keepdim=True).clamp_min(1e-4)
    scale = _pow2_ceil(amax / FP8_MAX)
    code = (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return (code.float() * scale).flatten(-2)


def fp4_round(rows: Tensor) -> Tensor:
    """E2M1 round trip of `(..., c)` float32 in blocks of 32, ties to the even code."""
    x = rows.float().unflatten(-1, (-1, 32))
    amax = x.abs().amax(-1, keepdim=True).clamp_min(FP4_MAX * 2.0**-126)
    scale = _pow2_ceil(amax / FP4_MAX)
    v = (x / scale).abs()
    q = 0.5 * (v > 0.25) + 0.5 * (v >= 0.75) + 0.5 * (v > 1.25) + 0.5 * (v >= 1.75)
    q = q + 1.0 * (v > 2.5) + 1.0 * (v >= 3.5) + 2.0 * (v > 5.0)
    return (torch.sign(x) * q * scale).flatten(-2)


def straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    """Value of `rounded`, gradient of `x`."""
    return x + (rounded.to(x.dtype) - x).detach()


def fp8_head(kv: Tensor, rope_dim: int) -> Tensor:
    """FP8 of the channels before the rotary ones, straight through."""
    plain, rotary = kv[..., :-rope_dim], kv[..., -rope_dim:]
    return torch.cat([straight_through(plain, fp8_round(plain)), rotary], -1)


def hadamard(n: int, device: torch.device | None = None) -> Tensor:
    """Normalised Hadamard matrix of size n (a power of two), float32, symmetric."""
    h = torch.ones(1, 1, device=device)
    while h.shape[0] < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return h / n**0.5


def fp4_rotated(x: Tensor, had: Tensor) -> Tensor:
    """Hadamard, then FP4, straight through (indexer queries and rows)."""
    rotated = x.float() @ had
    return straight_through(rotated, fp4_round(rotated))


def q8_0_round(w: Tensor) -> Tensor:
    """Q8_0 round trip of a weight whose last dimension is a multiple of 32."""
    x = w.float().unflatten(-1, (-1, 32))
    d = x.abs().amax(-1, keepdim=True) / 127.0
    inv = torch.where(d > 0, 1.0 / d, torch.zeros_like(d))
    q = torch.round(x * inv)
    return (q * d.half().float()).flatten(-2)


def f16_round(w: Tensor) -> Tensor:
    """Half-precision round trip."""
    return w.half().float()
