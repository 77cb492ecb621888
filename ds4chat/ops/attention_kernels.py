"""The attention branch between its products, in one launch a step.

Each function returns None where its kernel is not for such arrays or cannot be built here; the
caller then runs the stock operations of `attention.py`, `quantsim.py` and `indexer.py`. A row's
bits ignore the rows beside it: sums run in the order of slots, which absolute positions fix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Dispatcher, Output, current
from ds4chat.ops.rope import RopeTable
from ds4chat.ops.spec import LANES, KernelSpec, Tolerance

MAX_ROWS = 8
CHUNK, TILE_HEADS = 128, 8
"""Slots and heads of a block of the tiled kernel."""
MAX_HEAD = 512
"""Widest head: the sums of all simdgroups must fit in shared memory."""
MAX_WIDTH = 4096
"""Widest latent: a row stands in shared memory."""
THREADS = 256
_SIMDGROUPS = {"cuda": 8, "metal": 4, "host": 8}
_INDEX_FLOOR = 6.0 * 2.0**-126
_TYPES = (mx.float32, mx.bfloat16)

_SUMS = Tolerance(nmse=1e-9, reason="float32 sums")
_CODES = Tolerance(nmse=1e-5, reason="a value at a tie may take another FP8 or FP4 code")
_HALF = Tolerance(nmse=2e-5, reason="rounded to bf16, and a code may differ at a tie")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """`latent` `(L, Q)` in the type of q_a and in float32, and the key/value rows `(L, d)`."""

    latent: mx.array
    wide: mx.array
    row: mx.array


@cache
def rows_spec(
    widest: int, eps: float, *, has_latent: bool, has_wide: bool, is_rounded: bool
) -> KernelSpec:
    """The kernel behind `first_rows` and `kv_rows`; `widest` of its rows."""
    latent = ("latent", "wide_latent") if has_wide else ("latent",)
    return KernelSpec(
        name="attn_rows" if has_latent else "attn_row",
        source="attn_rows.kernel",
        headers=("row.h",),
        inputs=(
            "kv",
            "kv_norm",
            "cosines",
            "sines",
            *(("q_a", "q_norm") if has_latent else ()),
        ),
        outputs=("row", *(latent if has_latent else ())),
        threads=THREADS,
        constants={
            "WIDEST": widest,
            "RMS_EPS": f"{eps!r}f",
            "HAS_LATENT": int(has_latent),
            "HAS_WIDE": int(has_wide),
            "IS_ROUNDED": int(is_rounded),
        },
        tolerance=_HALF,
    )


@cache
def index_rows_spec(
    width: int, eps: float, per_row: int, *, is_normed: bool, is_rounded: bool
) -> KernelSpec:
    """The kernel behind `index_rows`."""
    return KernelSpec(
        name="index_row" if is_normed else "index_query",
        source="index_rows.kernel",
        headers=("row.h",),
        inputs=("x", "norm", "cosines", "sines"),
        outputs=("y",),
        threads=THREADS,
        constants={
            "VALUES": width // LANES,
            "RMS_EPS": f"{eps!r}f",
            "PER_ROW": per_row,
            "IS_NORMED": int(is_normed),
            "IS_ROUNDED": int(is_rounded),
            "HADAMARD": f"{width**-0.5!r}f",
            "FLOOR": f"{_INDEX_FLOOR!r}f",
        },
        tolerance=_CODES,
    )


@cache
def scores_spec(width: int, n_heads: int, first: int) -> KernelSpec:
    """The kernel behind `index_scores`; `first` columns of the mask are no keys."""
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
            "SCALE": f"{(width * n_heads) ** -0.5!r}f",
        },
        tolerance=_SUMS,
    )


def scores_blocks(n_keys: int) -> int:
    """Blocks a row of a launch of `scores_spec`."""
    return -(-n_keys // 128)


@cache
def decode_spec(
    width: int, n_heads: int, eps: float, *, backend: str, has_rows: bool, is_bf16_out: bool
) -> KernelSpec:
    """The kernel behind `decode`."""
    return KernelSpec(
        name="attn_decode" if has_rows else "attn_window",
        source="attn_decode.kernel",
        headers=("row.h", "lanes.h"),
        inputs=("q", "window", *(("keys",) if has_rows else ()), *_DECODE_REST),
        outputs=("out",),
        threads=LANES * _SIMDGROUPS[backend],
        constants={
            "VALUES": width // LANES,
            "HEADS": n_heads,
            "PER_BLOCK": heads_of_block(n_heads),
            "SIMDGROUPS": _SIMDGROUPS[backend],
            "HAS_ROWS": int(has_rows),
            "RMS_EPS": f"{eps!r}f",
            "SCALE": f"{width**-0.5!r}f",
        },
        tolerance=_HALF if is_bf16_out else _SUMS,
    )


@cache
def tiles_spec(
    width: int, n_heads: int, eps: float, *, backend: str, has_rows: bool
) -> KernelSpec:
    """The first kernel behind `decode` for bf16 keys and heads in eights."""
    return KernelSpec(
        name="attn_tiles" if has_rows else "attn_window_tiles",
        source="attn_tiles.kernel",
        headers=("row.h", "lanes.h"),
        inputs=(
            "q", "window", *(("keys",) if has_rows else ()), "mask", "cosines", "sines",
        ),
        outputs=("sums", "tops", "totals"),
        threads=LANES * _SIMDGROUPS[backend],
        constants={
            "VALUES": width // LANES,
            "HEADS": n_heads,
            "SIMDGROUPS": _SIMDGROUPS[backend],
            "CHUNK": CHUNK,
            "HAS_ROWS": int(has_rows),
            "RMS_EPS": f"{eps!r}f",
            "SCALE": f"{width**-0.5!r}f",
        },
        tolerance=Tolerance(nmse=1e-8, reason="queries and weights of 16 bits"),
    )  # fmt: skip


@cache
def join_spec(width: int, n_heads: int, *, is_bf16_out: bool) -> KernelSpec:
    """The second one."""
    return KernelSpec(
        name="attn_join",
        source="attn_join.kernel",
        headers=("row.h",),
        inputs=("sums", "tops", "totals", "sink", "cosines", "sines"),
        outputs=("out",),
        threads=width // 2,
        constants={"VALUES": width // LANES, "HEADS": n_heads},
        tolerance=_HALF if is_bf16_out else _SUMS,
    )


def n_chunks_of(n_window: int, n_keys: int) -> int:
    """Chunks of slots that `tiles_spec` makes of a window and compressed rows."""
    return -(-(-(-n_window // LANES) * LANES + n_keys) // CHUNK)


_DECODE_REST = ("mask", "sink", "cosines", "sines")


def heads_of_block(n_heads: int) -> int:
    """Heads that share what a block reads: two, if they come in pairs."""
    return 1 if n_heads % 2 else 2


def first_rows(  # noqa: PLR0913  (the arguments of one launch)
    q_a: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: RopeTable,
    *, eps: float, is_rounded: bool, row_dtype: mx.Dtype,
) -> FirstRows | None:  # fmt: skip
    """Latents `(L, Q)` from `q_a`, and key/value rows in `row_dtype` from `kv` `(L, d)`."""
    length, d = kv.shape
    if not _fits_row(kv, table, is_rounded) or not _is_narrow(q_a):
        return None
    has_wide = q_a.dtype != mx.float32
    spec = rows_spec(
        max(d, int(q_a.shape[1])),
        eps,
        has_latent=True,
        has_wide=has_wide,
        is_rounded=is_rounded,
    )
    outputs = [
        Output(shape=(length, d), dtype=row_dtype),
        Output(shape=q_a.shape, dtype=q_a.dtype),
        *([Output(shape=q_a.shape, dtype=mx.float32)] if has_wide else []),
    ]
    inputs = [kv, kv_norm, table.cos, table.sin, q_a, q_norm]
    made = current().run(spec, inputs, 2 * length, outputs)
    if made is None:
        return None
    return FirstRows(latent=made[1], wide=made[-1], row=made[0])


def kv_rows(
    kv: mx.array,
    norm: mx.array,
    table: RopeTable,
    *,
    eps: float,
    is_rounded: bool,
    dtype: mx.Dtype,
) -> mx.array | None:
    """`(L, d)` normed, turned and rounded, in `dtype`."""
    if not _fits_row(kv, table, is_rounded):
        return None
    spec = rows_spec(
        int(kv.shape[1]), eps, has_latent=False, has_wide=False, is_rounded=is_rounded
    )
    output = Output(shape=kv.shape, dtype=dtype)
    made = current().run(spec, [kv, norm, table.cos, table.sin], kv.shape[0], [output])
    return None if made is None else made[0]


def index_rows(
    x: mx.array, norm: mx.array | None, table: RopeTable, *, eps: float, is_rounded: bool
) -> mx.array | None:
    """Indexer rows or queries `(N, di)`, N / L of them at each of the table's L positions."""
    dispatcher, width = current(), int(x.shape[1])
    if dispatcher.is_reference or x.dtype not in _TYPES or not _fits_index(width):
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
    q: mx.array, head_weight: mx.array, keys: mx.array, mask: mx.array
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
    is_f32 = all(a.dtype == mx.float32 for a in (q, head_weight, keys))
    if dispatcher.is_reference or length > MAX_ROWS or not is_f32 or not _fits_index(width):
        return None
    spec = scores_spec(width, n_heads, int(mask.shape[1]) - n_keys)
    output = Output(shape=(length, n_keys), dtype=mx.float32)
    n_blocks = length * scores_blocks(n_keys)
    made = dispatcher.run(spec, [q, head_weight, keys, mask], n_blocks, [output])
    return None if made is None else made[0]


def decode(  # noqa: PLR0913  (the arguments of one launch)
    q: mx.array, window: mx.array, keys: mx.array | None, mask: mx.array, sink: mx.array,
    table: RopeTable, *, eps: float, dtype: mx.Dtype,
) -> mx.array | None:  # fmt: skip
    """Queries `(L, H * d)` as projected to attended values `(L, H, d)`, turned back.

    Args:
        q: neither normed nor turned.
        window: `(W, d)`, the ring or other rows; its hidden rows may hold anything.
        keys: `(C, d)` compressed rows in the type of `window`, or None.
        mask: `(L, 1 + W + C)`: 0, or -inf for what a row does not see; column 0 is the sink.
        sink: `(H,)`.
        table: angles of the rows.
        eps: of the norm of each head.
        dtype: of the result.
    """
    length, n_heads, width = q.shape[0], int(sink.shape[0]), int(window.shape[1])
    dispatcher = current()
    if length > MAX_ROWS or not fits_decode(dispatcher, width, q.dtype, window.dtype, dtype):
        return None
    made = _decode_tiles(q, window, keys, mask, sink, table, eps=eps, dtype=dtype)
    if made is not None:
        return made
    spec = decode_spec(
        width,
        n_heads,
        eps,
        backend=dispatcher.backend,
        has_rows=keys is not None,
        is_bf16_out=dtype == mx.bfloat16,
    )
    inputs = [q, window, *([] if keys is None else [keys]), mask, sink, table.cos, table.sin]
    output = Output(shape=(length, n_heads, width), dtype=dtype)
    ran = dispatcher.run(spec, inputs, length * n_heads // heads_of_block(n_heads), [output])
    return None if ran is None else ran[0]


def _decode_tiles(  # noqa: PLR0913  (the arguments of one launch)
    q: mx.array, window: mx.array, keys: mx.array | None, mask: mx.array, sink: mx.array,
    table: RopeTable, *, eps: float, dtype: mx.Dtype,
) -> mx.array | None:  # fmt: skip
    """`decode` on the matrix unit, a block for a chunk of slots and eight heads."""
    length, n_heads, width = q.shape[0], int(sink.shape[0]), int(window.shape[1])
    rows = [window] if keys is None else [window, keys]
    is_half = all(a.dtype == mx.bfloat16 for a in rows)
    if n_heads % TILE_HEADS or not is_half or dtype != mx.bfloat16:
        return None
    spec = tiles_spec(width, n_heads, eps, backend=current().backend, has_rows=keys is not None)
    n_chunks = n_chunks_of(int(window.shape[0]), 0 if keys is None else int(keys.shape[0]))
    outputs = [
        Output(shape=(length, n_chunks, n_heads, width), dtype=mx.float32),
        *[Output(shape=(length, n_chunks, n_heads), dtype=mx.float32)] * 2,
    ]
    n_blocks = length * n_chunks * n_heads // TILE_HEADS
    parts = current().run(spec, [q, *rows, mask, table.cos, table.sin], n_blocks, outputs)
    if parts is None:
        return None
    join = join_spec(width, n_heads, is_bf16_out=True)
    output = Output(shape=(length, n_heads, width), dtype=dtype)
    inputs = [*parts, sink, table.cos, table.sin]
    made = current().run(join, inputs, length * n_heads, [output])
    return None if made is None else made[0]


def fits_decode(dispatcher: Dispatcher, width: int, *dtypes: mx.Dtype) -> bool:
    """Whether heads of `width` channels have a kernel."""
    return (
        not dispatcher.is_reference
        and width % 64 == 0
        and width <= MAX_HEAD
        and (width // LANES % 8 == 0 or width // LANES in (2, 4))
        and all(t in _TYPES for t in dtypes)
    )


def order_is_fixed(width: int, index_width: int | None, dtype: mx.Dtype) -> bool:
    """Whether all sums whose length grows with the context are kernels here.

    Where the tiled kernels are given up, `decode_spec` runs, in a fixed order too.

    Args:
        width: of a head.
        index_width: of an indexer's row; None without indexers.
        dtype: of activations.
    """
    dispatcher = current()
    return (
        fits_decode(dispatcher, width, dtype)
        and (index_width is None or _fits_index(index_width))
        and not {"attn_decode", "attn_window", "index_scores"} & set(dispatcher.fallbacks)
    )


def _fits_row(kv: mx.array, table: RopeTable, is_rounded: bool) -> bool:
    n_plain = kv.shape[1] - 2 * table.cos.shape[1]
    return (
        not current().is_reference and _is_narrow(kv) and (n_plain % 64 == 0 or not is_rounded)
    )


def _is_narrow(x: mx.array) -> bool:
    return x.shape[1] <= MAX_WIDTH and x.dtype in _TYPES


def _fits_index(width: int) -> bool:
    return width in (32, 64, 128, 256)
