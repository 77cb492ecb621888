"""Launches of the kernels for pooled rows and the choice of rows, with references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import cache_kernels as ck
from tests.kernels.cases import Case

F32 = "float32"


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)


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
    yield pool_case(is_overlapping=True, is_first=False, n_tokens=8, width=192)
    yield pool_case(is_overlapping=True, is_first=True, n_tokens=4, width=192)
    yield pool_case(is_overlapping=False, is_first=False, n_tokens=128, width=96)
    yield some_choice()
