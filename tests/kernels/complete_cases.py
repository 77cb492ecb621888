"""Launches that complete compressed rows, with references."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import complete_kernels as ck
from tests.kernels.attention_cases import EPS, ROPE, fp8, hadamard_fp4, normed, turned
from tests.kernels.cases import Case, from_bf16, to_bf16

F32, I32 = "float32", "int32"
CAPACITY, AT = 37, 18
"""More than two blocks copy, and not in sixteens."""


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)


def complete_case(
    kind: str, n_tokens: int, *, index_width: int, is_overlapping: bool, is_first: bool = False
) -> Case:
    """Row 18 of 37, of 128 channels, from the raw rows at `n_tokens` slots."""
    rng = np.random.default_rng((n_tokens, index_width))
    width, factor = 128, 2 if is_overlapping else 1
    slots = (5 + np.arange(n_tokens)) % (n_tokens + 8)
    angle = rng.uniform(0, 6, (1, ROPE // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def raw(size: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        ring = _normal(rng, n_tokens + 8, 2, factor * size)
        picked = ring[slots].astype(np.float64)
        if is_overlapping:
            n_older = 0 if is_first else n_tokens // 2
            older, newer = picked[:n_older, :, :size], picked[n_older:, :, size:]
            picked = np.concatenate([older, newer])
        weights = np.exp(picked[:, 1])
        return ring, (weights * picked[:, 0]).sum(0, keepdims=True) / weights.sum(0)

    norm, (ring, pooled) = _normal(rng, width), raw(width)
    rows = _normal(rng, CAPACITY, width)
    rows[AT] = np.nan
    sent = to_bf16(rows) if kind == "bfloat16" else rows
    row = normed(pooled) * norm
    row[:, :-ROPE] = fp8(row[:, :-ROPE])
    wanted = [(from_bf16(sent) if kind == "bfloat16" else rows).astype(np.float64)]
    wanted[0][AT] = turned(row, cos.astype(np.float64), sin.astype(np.float64))
    inputs = [(sent, kind), (ring, F32), (slots.astype(np.int32), I32)]
    inputs += [(np.array([AT], np.int32), I32), (norm, F32), (cos, F32), (sin, F32)]
    if index_width:
        norm, (ring, pooled) = _normal(rng, index_width), raw(index_width)
        rows = _normal(rng, CAPACITY, index_width)
        made = turned(normed(pooled) * norm, cos.astype(np.float64), sin.astype(np.float64))
        wanted.append(rows.astype(np.float64))
        wanted[1][AT] = hadamard_fp4(made)
        inputs += [(rows, F32), (ring, F32), (norm, F32)]
    form = ck.Form(
        width=width,
        index_width=index_width,
        eps=EPS,
        is_rounded=True,
        is_overlapping=is_overlapping,
        is_first=is_first,
    )
    return Case(
        spec=ck.complete_spec(form),
        inputs=tuple(inputs),
        n_blocks=ck.complete_blocks(CAPACITY, has_index=index_width > 0),
        outputs=tuple((w.shape, k) for w, k in zip(wanted, (kind, F32), strict=False)),
        exact=tuple(wanted),
    )


def cases() -> Iterator[Case]:
    """One launch of every variant."""
    yield complete_case("bfloat16", 8, index_width=64, is_overlapping=True)
    yield complete_case("bfloat16", 4, index_width=64, is_overlapping=True, is_first=True)
    yield complete_case("bfloat16", 128, index_width=0, is_overlapping=False)
    yield complete_case(F32, 8, index_width=128, is_overlapping=True)
