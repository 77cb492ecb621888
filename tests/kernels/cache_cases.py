"""Launches of the kernels for rings, pooled rows and the choice of rows, with references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import cache_kernels as ck
from tests.kernels.cases import Array, Case, from_bf16, to_bf16

F32 = "float32"
RATIO = 4


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)


def _typed(values: NDArray[np.float32], kind: str) -> tuple[Array, str]:
    return (to_bf16(values) if kind == "bfloat16" else values), kind


def _doubles(array: tuple[Array, str]) -> NDArray[np.float64]:
    values, kind = array
    return (from_bf16(values) if kind == "bfloat16" else values).astype(np.float64)


def rings_case(n_raw: int, n_rows: int, kind: str, firsts: tuple[int, ...] = ()) -> Case:
    """`n_rows` rows into a ring of 20 slots and `n_raw` rings of 15, in no order.

    Values and gates stand from `firsts` on among other columns.
    """
    width, firsts = 96, firsts or (0, 0) * n_raw
    rng = np.random.default_rng((n_raw, n_rows))
    window, rows = (_typed(_normal(rng, n, width), kind) for n in (20, n_rows))
    slots = rng.permutation(20)[:n_rows].astype(np.int32)
    raw_slots = rng.permutation(15)[:n_rows].astype(np.int32)
    phase = rng.integers(0, RATIO, n_rows, np.int32)
    inputs = [window, rows, (slots, "int32")]
    wanted = [_doubles(window)]
    wanted[0][slots] = _doubles(rows)
    for i in range(n_raw):
        size = 64 + 32 * i
        ring, bias = _normal(rng, 15, 2, size), _normal(rng, RATIO, size)
        at, places = [], firsts[2 * i : 2 * i + 2]
        for first in places:
            whole = _typed(_normal(rng, n_rows, first + size + 8 * min(1, first)), kind)
            at.append(whole)
        values, gates = (
            (whole[0][:, first : first + size], kind)
            for whole, first in zip(at, places, strict=True)
        )
        inputs += [(ring, F32), *at, (bias, F32)]
        inputs += [] if i else [(phase, "int32"), (raw_slots, "int32")]
        new = ring.astype(np.float64)
        new[raw_slots, 0] = _doubles(values)
        new[raw_slots, 1] = _doubles(gates).astype(np.float32) + bias[phase]
        wanted.append(new)
    return Case(
        spec=ck.rings_spec(*firsts),
        inputs=tuple(inputs),
        n_blocks=20 + 15 * n_raw,
        outputs=tuple((w.shape, kind if i == 0 else F32) for i, w in enumerate(wanted)),
        exact=tuple(wanted),
    )


def pool_case(*, is_overlapping: bool, is_first: bool, n_tokens: int, width: int) -> Case:
    """The rows at `n_tokens` slots of a ring to one."""
    rng = np.random.default_rng((n_tokens, width))
    raw = _normal(rng, n_tokens + 8, 2, width)
    slots = (rng.integers(0, 99) + np.arange(n_tokens)) % len(raw)
    picked = raw[slots].astype(np.float64)
    if is_overlapping:
        half, n_older = width // 2, 0 if is_first else n_tokens // 2
        picked = np.concatenate([picked[:n_older, :, :half], picked[n_older:, :, half:]])
    weights = np.exp(picked[:, 1])
    pooled = (weights * picked[:, 0]).sum(0) / weights.sum(0)
    return Case(
        spec=ck.pool_spec(is_overlapping=is_overlapping, is_first=is_first),
        inputs=((raw, F32), (slots.astype(np.int32), "int32")),
        n_blocks=-(-len(pooled) // ck.NARROW),
        outputs=(((1, len(pooled)), F32),),
        exact=(pooled[None],),
    )


def choose_case(
    scores: NDArray[np.float32], mask: NDArray[np.float32], n_kept: int, exact: NDArray[Any]
) -> Case:
    """A choice whose result is known."""
    return Case(
        spec=ck.choose_spec(n_kept),
        inputs=((scores, F32), (mask, F32)),
        n_blocks=len(mask) * -(-mask.shape[1] // ck.NARROW),
        outputs=((mask.shape, F32),),
        exact=(exact,),
    )


def some_choice(n_keys: int = 700, n_kept: int = 100, before: int = 137) -> Case:
    """Three queries with many ties; each sees fewer keys than the next."""
    rng = np.random.default_rng(n_keys)
    scores = rng.integers(0, n_keys // 3, (3, n_keys)).astype(np.float32)
    mask = np.zeros((3, before + n_keys), np.float32)
    mask[:, 1:before:3] = -np.inf
    exact = mask.copy()
    for i, n_seen in enumerate((n_kept // 2, n_kept + 5, n_keys)):
        mask[i, before + n_seen :] = -np.inf
        best = np.argsort(-scores[i, :n_seen], kind="stable")[:n_kept]
        exact[i, before:] = -np.inf
        exact[i, before + best] = 0
    return choose_case(scores, mask, n_kept, exact)


def cases() -> Iterator[Case]:
    """One launch of every variant."""
    for n_raw in range(3):
        yield rings_case(n_raw, 5, "bfloat16")
    yield rings_case(2, 1, F32)
    yield rings_case(2, 6, F32, (0, 64, 128, 224))
    yield pool_case(is_overlapping=True, is_first=False, n_tokens=8, width=192)
    yield pool_case(is_overlapping=True, is_first=True, n_tokens=4, width=192)
    yield pool_case(is_overlapping=False, is_first=False, n_tokens=128, width=96)
    yield some_choice()
