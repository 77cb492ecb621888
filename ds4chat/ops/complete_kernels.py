"""A compressed row from its tokens' raw rows to its place, in one launch instead of eight.

Returns None where the kernel is not for such arrays or cannot be built here: the callers' steps
of `cache_kernels.py`, `attention_kernels.py` and `index_kernels.py` give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx

from ds4chat.ops.attention_kernels import HALF, MAX_WIDTH, THREADS, TYPES
from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.index_kernels import fits_index, row_constants
from ds4chat.ops.rope import RopeTable
from ds4chat.ops.spec import KernelSpec

SOME = 16
"""Rows that a block copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """Rows `(capacity, n)`, the ring `(R, 2, W)` of their tokens' raw rows, and their norm."""

    rows: mx.array
    raw: mx.array
    norm: mx.array


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Row `at` `(1,)`, of the tokens at `slots` in order; `table` holds its angles.

    A negative row is none: no row is made then.

    `is_overlapping` and `is_first` as for `cache_kernels.pool`.
    """

    at: mx.array
    slots: mx.array
    table: RopeTable
    is_overlapping: bool
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a variant depends on; `index_width` is 0 without an indexer."""

    width: int
    index_width: int
    eps: float
    is_rounded: bool
    is_overlapping: bool
    is_first: bool


@cache
def complete_spec(form: Form) -> KernelSpec:
    """The kernel behind `complete`."""
    has_index = form.index_width > 0
    index = row_constants(form.index_width, form.is_rounded) if has_index else {}
    return KernelSpec(
        name="complete_both" if has_index else "complete",
        source="complete.kernel",
        headers=("row.h", "latent.h", "pool.h", *(("index.h",) if has_index else ())),
        inputs=(
            *("rows", "raw", "slots", "at", "norm", "cosines", "sines"),
            *(("index_rows", "index_raw", "index_norm") if has_index else ()),
        ),
        outputs=("new_rows", *(("new_index_rows",) if has_index else ())),
        threads=THREADS,
        constants={
            "IS_ROUNDED": int(form.is_rounded),
            **index,
            "HAS_INDEX": int(has_index),
            "WIDEST": max(form.width, form.index_width),
            "RMS_EPS": f"{form.eps!r}f",
            "IS_OVERLAPPING": int(form.is_overlapping),
            "IS_FIRST": int(form.is_first),
            "SOME": SOME,
        },
        tolerance=HALF,
        in_place=True,
    )


def complete_blocks(capacity: int, *, has_index: bool) -> int:
    """Blocks of a launch of `complete_spec`."""
    return (1 + has_index) * (1 + -(-capacity // SOME))


def complete(
    keys: Pooled, index: Pooled | None, place: Place, *, eps: float, is_rounded: bool
) -> list[mx.array] | None:
    """The rows of `keys` with row `place.at` made, and those of `index`."""
    if not _fits(keys, index, place, is_rounded=is_rounded):
        return None
    capacity, width = keys.rows.shape
    form = Form(
        width=width,
        index_width=0 if index is None else int(index.rows.shape[1]),
        eps=eps,
        is_rounded=is_rounded,
        is_overlapping=place.is_overlapping,
        is_first=place.is_first,
    )
    table = place.table
    inputs = [keys.rows, keys.raw, place.slots, place.at, keys.norm, table.cos, table.sin]
    made = [keys.rows]
    if index is not None:
        inputs += [index.rows, index.raw, index.norm]
        made.append(index.rows)
    outputs = [Output(shape=a.shape, dtype=a.dtype) for a in made]
    n_blocks = complete_blocks(capacity, has_index=index is not None)
    return current().run(complete_spec(form), inputs, n_blocks, outputs)


def _fits(keys: Pooled, index: Pooled | None, place: Place, *, is_rounded: bool) -> bool:
    n_plain = int(keys.rows.shape[1]) - 2 * place.table.cos.shape[1]
    is_known = index is None or (
        fits_index(int(index.rows.shape[1]))
        and index.rows.dtype == mx.float32
        and index.rows.shape[0] == keys.rows.shape[0]
    )
    return (
        not current().is_reference
        and is_known
        and keys.rows.dtype in TYPES
        and keys.rows.shape[1] <= MAX_WIDTH
        and (n_plain % 64 == 0 or not is_rounded)
    )
