"""Launches of the kernel that fills a layer's rings, with references.

Products that it reads are columns of wider arrays, as joined products leave them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import keep_kernels as kk
from tests.kernels.attention_cases import EPS, ROPE, fp8, normed, turned
from tests.kernels.cases import Array, Case, from_bf16, to_bf16

F32, I32 = "float32", "int32"
RATIO, RING, RAW_RING = 4, 20, 15
BESIDE = 3
"""Columns of other products before, between and behind those that are read."""

Sent = tuple[Array, str]


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)


def _typed(values: NDArray[np.float32], kind: str) -> Sent:
    return (to_bf16(values) if kind == "bfloat16" else values), kind


def _held(sent: Sent) -> NDArray[np.float32]:
    values, kind = sent
    return from_bf16(values) if kind == "bfloat16" else values


def columns(
    rng: np.random.Generator, n_rows: int, widths: tuple[int, ...], kind: str
) -> tuple[Sent, tuple[int, ...]]:
    """One array with products of these widths, NaN beside them, and where each begins."""
    starts = np.cumsum([BESIDE, *(w + BESIDE for w in widths)])
    joined = np.full((n_rows, starts[-1]), np.nan, np.float32)
    for at, width in zip(starts, widths, strict=False):
        joined[:, at : at + width] = _normal(rng, n_rows, width)
    return _typed(joined, kind), tuple(int(at) for at in starts[:-1])


def keep_case(
    n_raw: int, n_rows: int, kind: str, *, width: int = 192, latent: int = 96
) -> Case:
    """`n_rows` rows into a ring and `n_raw` others, in no order; `latent` 0: no latents."""
    rng = np.random.default_rng((n_raw, n_rows, latent))
    sent, (q_at, kv_at) = columns(rng, n_rows, (latent, width), kind)
    window, slots = _typed(_normal(rng, RING, width), kind), rng.permutation(RING)[:n_rows]
    angle = rng.uniform(0, 6, (n_rows, ROPE // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    kv_norm, q_norm = _normal(rng, width), _normal(rng, latent)
    held = _held(sent).astype(np.float64)
    row = normed(held[:, kv_at : kv_at + width]) * kv_norm
    row[:, :-ROPE] = fp8(row[:, :-ROPE])
    wanted = [_held(window).astype(np.float64)]
    wanted[0][slots] = turned(row, cos.astype(np.float64), sin.astype(np.float64))
    inputs = [window, (slots.astype(np.int32), I32), sent, (kv_norm, F32), (cos, F32)]
    inputs += [(sin, F32), *((sent, (q_norm, F32)) if latent else ())]
    places = [kv_at, q_at if latent else 0]
    for new, more, at in _raw(rng, n_raw, n_rows):
        wanted.append(new)
        inputs += more
        places += at
    kinds, has_wide = [kind, *[F32] * n_raw], latent > 0 and kind != F32
    if latent:
        wanted += [normed(held[:, q_at : q_at + latent]) * q_norm] * (1 + has_wide)
        kinds += [kind, F32][: 1 + has_wide]
    form = kk.Form(
        widest=max(width, latent),
        eps=EPS,
        places=tuple(places),
        has_latent=latent > 0,
        has_wide=has_wide,
        is_rounded=True,
    )
    return Case(
        spec=kk.keep_spec(form),
        inputs=tuple(inputs),
        n_blocks=RING + RAW_RING * n_raw + (n_rows if latent else 0),
        outputs=tuple((w.shape, k) for w, k in zip(wanted, kinds, strict=True)),
        exact=tuple(wanted),
    )


def _raw(
    rng: np.random.Generator, n_raw: int, n_rows: int
) -> Iterator[tuple[NDArray[np.float64], list[Sent], tuple[int, ...]]]:
    """Rings of raw rows after the launch, its inputs for them, and columns."""
    slots = rng.permutation(RAW_RING)[:n_rows].astype(np.int32)
    phase = rng.integers(0, RATIO, n_rows, np.int32)
    for i in range(n_raw):
        size = 64 + 33 * i  # the second cannot be copied 16 bytes at a time
        ring, bias = _normal(rng, RAW_RING, 2, size), _normal(rng, RATIO, size)
        sent, (value_at, gate_at) = columns(rng, n_rows, (size, size), F32)
        new = ring.astype(np.float64)
        new[slots, 0] = sent[0][:, value_at : value_at + size]
        new[slots, 1] = sent[0][:, gate_at : gate_at + size] + bias[phase]
        more: list[Sent] = [(ring, F32), sent, sent, (bias, F32)]
        yield new, more + ([] if i else [(phase, I32), (slots, I32)]), (value_at, gate_at)


def cases() -> Iterator[Case]:
    """One launch of every variant."""
    for n_raw in range(3):
        yield keep_case(n_raw, 5, "bfloat16")
    yield keep_case(2, 1, F32)
    yield keep_case(0, 3, "bfloat16", latent=0)
