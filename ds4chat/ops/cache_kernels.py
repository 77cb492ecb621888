"""Compressed rows out of a ring, and the choice among them, each in one launch.

Each function returns None where its kernel is not for such arrays or cannot be built here. The
callers' stock operations give the same choices, and pooled rows up to rounding.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.spec import KernelSpec, Tolerance

MAX_ROWS = 8
MAX_KEYS = 16_384
"""Keys whose ranks are counted; the work grows with their square."""
NARROW = 64


@cache
def pool_spec(*, is_overlapping: bool, is_first: bool) -> KernelSpec:
    """The kernel behind `pool`."""
    return KernelSpec(
        name="pool",
        source="pool.kernel",
        headers=("row.h", "pool.h"),
        inputs=("raw", "slots"),
        outputs=("pooled",),
        threads=NARROW,
        constants={"IS_OVERLAPPING": int(is_overlapping), "IS_FIRST": int(is_first)},
        tolerance=Tolerance(nmse=1e-11, reason="float32 sums of up to 128 products"),
    )


@cache
def choose_spec(n_kept: int) -> KernelSpec:
    """The kernel behind `choose`."""
    return KernelSpec(
        name="choose",
        source="choose.kernel",
        inputs=("scores", "mask"),
        outputs=("chosen",),
        threads=4 * NARROW,
        constants={"KEPT": n_kept},
        tolerance=Tolerance(nmse=0.0, reason="a choice"),
    )


def pool(
    raw: mx.array, slots: mx.array, *, is_overlapping: bool, is_first: bool
) -> mx.array | None:
    """The raw rows `(R, 2, W)` at `slots`, in token order, as one row `(1, c)` float32."""
    if current().is_reference:
        return None
    width = raw.shape[2] // 2 if is_overlapping else raw.shape[2]
    spec = pool_spec(is_overlapping=is_overlapping, is_first=is_first)
    output = Output(shape=(1, width), dtype=mx.float32)
    made = current().run(spec, [raw, slots], -(-width // NARROW), [output])
    return None if made is None else made[0]


def choose(scores: mx.array, mask: mx.array, n_kept: int) -> mx.array | None:
    """`mask` `(L, S)` with the best `n_kept` by `scores` `(L, C)` of its last C columns."""
    if current().is_reference or scores.shape[0] > MAX_ROWS or scores.shape[1] > MAX_KEYS:
        return None
    n_blocks = mask.shape[0] * -(-mask.shape[1] // NARROW)
    output = Output(shape=mask.shape, dtype=mx.float32)
    made = current().run(choose_spec(n_kept), [scores, mask], n_blocks, [output])
    return None if made is None else made[0]
