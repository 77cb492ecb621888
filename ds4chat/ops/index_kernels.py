"""The indexer's rows, queries and scores, each in one launch.

Each function returns None where its kernel is not for such arrays or cannot be built here; the
caller then runs the stock operations of `quantsim.py` and `indexer.py`. A score depends on its
own query and key alone.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.linear import Columns
from ds4chat.ops.rope import RopeTable
from ds4chat.ops.spec import LANES, KernelSpec, Tolerance

MAX_ROWS = 8
THREADS = 256
_FLOOR = 6.0 * 2.0**-126
_TYPES = (mx.float32, mx.bfloat16)
_SUMS = Tolerance(nmse=1e-9, reason="float32 sums")
_CODES = Tolerance(nmse=1e-5, reason="a value at a tie may take another FP8 or FP4 code")


@cache
def index_rows_spec(
    width: int, eps: float, per_row: int, *, is_normed: bool, is_rounded: bool
) -> KernelSpec:
    """The kernel behind `index_rows`."""
    return KernelSpec(
        name="index_row" if is_normed else "index_query",
        source="index_rows.kernel",
        headers=("row.h", "index.h"),
        inputs=("x", "norm", "cosines", "sines"),
        outputs=("y",),
        threads=THREADS,
        constants={
            **row_constants(width, is_rounded),
            "RMS_EPS": f"{eps!r}f",
            "PER_ROW": per_row,
            "IS_NORMED": int(is_normed),
        },
        tolerance=_CODES,
    )


@cache
def scores_spec(width: int, n_heads: int, first: int, weights_at: int = 0) -> KernelSpec:
    """The kernel behind `index_scores`.

    `first` columns of the mask are no keys; `weights_at`: the first column of the weights.
    """
    return KernelSpec(
        name="index_scores",
        source="index_scores.kernel",
        headers=("row.h",),
        inputs=("q", "w", "keys", "mask"),
        outputs=("score",),
        threads=THREADS,
        constants={
            "VALUES": width // LANES,
            "HEADS": n_heads,
            "FIRST": first,
            "W_AT": weights_at,
            "SCALE": f"{(width * n_heads) ** -0.5!r}f",
        },
        tolerance=_SUMS,
    )


def row_constants(width: int, is_rounded: bool) -> dict[str, int | float | str]:
    """What `index.h` wants."""
    return {
        "VALUES": width // LANES,
        "WIDTH": width,
        "IS_ROUNDED": int(is_rounded),
        "HADAMARD": f"{width**-0.5!r}f",
        "FLOOR": f"{_FLOOR!r}f",
    }


def scores_blocks(n_keys: int) -> int:
    """Blocks a row of a launch of `scores_spec`."""
    return -(-n_keys // 128)


def index_rows(
    x: mx.array, norm: mx.array | None, table: RopeTable, *, eps: float, is_rounded: bool
) -> mx.array | None:
    """Indexer rows or queries `(N, di)`, N / L of them at each of the table's L positions."""
    dispatcher, width = current(), int(x.shape[1])
    if dispatcher.is_reference or x.dtype not in _TYPES or not fits_index(width):
        return None
    per_row = x.shape[0] // table.cos.shape[0]
    spec = index_rows_spec(
        width, eps, per_row, is_normed=norm is not None, is_rounded=is_rounded
    )
    unused = table.cos if norm is None else norm
    output = Output(shape=x.shape, dtype=mx.float32)
    inputs = [x, unused, table.cos, table.sin]
    made = dispatcher.run(spec, inputs, -(-x.shape[0] // 8), [output])
    return None if made is None else made[0]


def index_scores(
    q: mx.array, head_weight: Columns, keys: mx.array, mask: mx.array
) -> mx.array | None:
    """`(L, C)` scores of `keys` `(C, di)` for queries `(L, Hi, di)`; all float32.

    Args:
        q: turned and rounded.
        head_weight: `(L, Hi)`, not yet scaled.
        keys: rows of the indexer; those that no query sees may hold anything.
        mask: `(L, S)`, its last C columns those of the keys.
    """
    length, n_heads, width = q.shape
    dispatcher, n_keys = current(), int(keys.shape[0])
    is_f32 = all(a.dtype == mx.float32 for a in (q, head_weight.whole, keys))
    if dispatcher.is_reference or length > MAX_ROWS or not is_f32 or not fits_index(width):
        return None
    spec = scores_spec(width, n_heads, int(mask.shape[1]) - n_keys, head_weight.first)
    output = Output(shape=(length, n_keys), dtype=mx.float32)
    n_blocks = length * scores_blocks(n_keys)
    made = dispatcher.run(spec, [q, head_weight.whole, keys, mask], n_blocks, [output])
    return None if made is None else made[0]


def fits_index(width: int) -> bool:
    """Whether rows of `width` channels have kernels."""
    return width in (32, 64, 128, 256)
