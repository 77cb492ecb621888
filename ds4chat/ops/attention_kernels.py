"""The attention branch between its products, in one launch a step.

Each function returns None where its kernel is not for such arrays or cannot be built here; the
caller then runs the stock operations of `attention.py` and `quantsim.py`. A row's
bits ignore the rows beside it: sums run in the order of slots, which absolute positions fix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Dispatcher, Output, current
from ds4chat.ops.index_kernels import fits_index
from ds4chat.ops.linear import Columns
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
TYPES = (mx.float32, mx.bfloat16)

SUMS = Tolerance(nmse=1e-9, reason="float32 sums")
HALF = Tolerance(nmse=2e-5, reason="rounded to bf16, and a code may differ at a tie")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """`latent` `(L, Q)` in the type of q_a and in float32, and the key/value rows `(L, d)`."""

    latent: mx.array
    wide: mx.array
    row: mx.array


@cache
def rows_spec(
    widest: int,
    eps: float,
    *,
    has_latent: bool,
    has_wide: bool,
    is_rounded: bool,
    places: tuple[int, int] = (0, 0),
) -> KernelSpec:
    """The kernel behind `first_rows` and `kv_rows`.

    `widest` of its rows; `places`: the first columns of kv and q_a.
    """
    latent = ("latent", "wide_latent") if has_wide else ("latent",)
    return KernelSpec(
        name="attn_rows" if has_latent else "attn_row",
        source="attn_rows.kernel",
        headers=("row.h", "latent.h"),
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
            "KV_AT": places[0],
            "Q_AT": places[1],
        },
        tolerance=HALF,
    )


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
        tolerance=HALF if is_bf16_out else SUMS,
    )


@cache
def tiles_spec(
    width: int, n_heads: int, eps: float, *, backend: str, has_rows: bool
) -> KernelSpec:
    """The first kernel behind `decode` for bf16 keys and heads in eights."""
    rows = ("window", "keys") if has_rows else ("window",)
    return KernelSpec(
        name="attn_tiles" if has_rows else "attn_window_tiles",
        source="attn_tiles.kernel",
        headers=("row.h", "lanes.h"),
        inputs=("q", *rows, "mask", "cosines", "sines"),
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
    )


@cache
def join_spec(width: int, n_heads: int, *, is_bf16_out: bool) -> KernelSpec:
    """The second one, which adds the chunks of the first."""
    threads = max(LANES, width // 4)
    return KernelSpec(
        name="attn_join",
        source="attn_join.kernel",
        headers=("row.h",),
        inputs=("sums", "tops", "totals", "sink", "cosines", "sines"),
        outputs=("out",),
        threads=threads,
        constants={"VALUES": width // LANES, "HEADS": n_heads, "THREADS": threads},
        tolerance=HALF if is_bf16_out else SUMS,
    )


def n_chunks_of(n_window: int, n_keys: int = 0) -> int:
    """Chunks of slots that `tiles_spec` makes of a window and compressed rows."""
    return -(-(-(-n_window // LANES) * LANES + n_keys) // CHUNK)


def sums_bytes(n_window: int, n_heads: int, width: int) -> tuple[int, float]:
    """Bytes of a row's chunk sums in a layer: with a window alone, and more for each key.

    Only where attention is tiled: bf16 and heads in eights.
    """
    if n_heads % TILE_HEADS:
        return 0, 0.0
    chunk = n_heads * (width + 2) * 4  # `sums`, `tops` and `totals` of `tiles_spec`
    return (n_chunks_of(n_window) + 1) * chunk, chunk / CHUNK


_DECODE_REST = ("mask", "sink", "cosines", "sines")


def heads_of_block(n_heads: int) -> int:
    """Heads that share what a block reads: two, if they come in pairs."""
    return 1 if n_heads % 2 else 2


def first_rows(  # noqa: PLR0913  (the arguments of one launch)
    q_a: Columns, q_norm: mx.array, kv: Columns, kv_norm: mx.array, table: RopeTable,
    *, eps: float, is_rounded: bool, row_dtype: mx.Dtype,
) -> FirstRows | None:  # fmt: skip
    """Latents `(L, Q)` from `q_a`, and key/value rows in `row_dtype` from `kv` `(L, d)`."""
    if not _fits_row(kv, table, is_rounded) or not _is_narrow(q_a):
        return None
    length, dtype = kv.whole.shape[0], q_a.whole.dtype
    has_wide = dtype != mx.float32
    spec = rows_spec(
        max(kv.width, q_a.width),
        eps,
        has_latent=True,
        has_wide=has_wide,
        is_rounded=is_rounded,
        places=(kv.first, q_a.first),
    )
    types = [dtype, *([mx.float32] if has_wide else [])]
    outputs = [
        Output(shape=(length, kv.width), dtype=row_dtype),
        *(Output(shape=(length, q_a.width), dtype=t) for t in types),
    ]
    inputs = [kv.whole, kv_norm, table.cos, table.sin, q_a.whole, q_norm]
    made = current().run(spec, inputs, 2 * length, outputs)
    if made is None:
        return None
    return FirstRows(latent=made[1], wide=made[-1], row=made[0])


def kv_rows(
    kv: Columns,
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
        kv.width,
        eps,
        has_latent=False,
        has_wide=False,
        is_rounded=is_rounded,
        places=(kv.first, 0),
    )
    n_rows = kv.whole.shape[0]
    output = Output(shape=(n_rows, kv.width), dtype=dtype)
    inputs = [kv.whole, norm, table.cos, table.sin]
    made = current().run(spec, inputs, n_rows, [output])
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
    rows = [window] if keys is None else [window, keys]
    if _has_tiles(n_heads, [dtype, *(r.dtype for r in rows)]):
        tiles = _Tiles(q=q, rows=rows, mask=mask, sink=sink, table=table, eps=eps)
        made = _decode_tiles(tiles)
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


def _has_tiles(n_heads: int, types: list[mx.Dtype]) -> bool:
    return n_heads % TILE_HEADS == 0 and all(t == mx.bfloat16 for t in types)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """The arguments of `decode`; `rows` are the window and, if there are any, keys."""

    q: mx.array
    rows: list[mx.array]
    mask: mx.array
    sink: mx.array
    table: RopeTable
    eps: float


def _decode_tiles(a: _Tiles) -> mx.array | None:
    """`decode` on the matrix unit: a block for a chunk of slots and eight heads, then sums."""
    length, n_heads, width = a.q.shape[0], int(a.sink.shape[0]), int(a.rows[0].shape[1])
    backend, has_rows = current().backend, len(a.rows) > 1
    spec = tiles_spec(width, n_heads, a.eps, backend=backend, has_rows=has_rows)
    n_chunks = n_chunks_of(*(int(r.shape[0]) for r in a.rows))
    out = Output(shape=(length, n_heads, width), dtype=mx.bfloat16)
    parts = [
        Output(shape=(length, n_chunks, n_heads, width), dtype=mx.float32),
        *[Output(shape=(length, n_chunks, n_heads), dtype=mx.float32)] * 2,
    ]
    n_blocks = length * n_chunks * n_heads // TILE_HEADS
    angles = [a.table.cos, a.table.sin]
    inputs = [a.q, *a.rows, a.mask, *angles]
    made = current().run(spec, inputs, n_blocks, parts)
    if made is None:
        return None
    join = join_spec(width, n_heads, is_bf16_out=True)
    ran = current().run(join, [*made, a.sink, *angles], length * n_heads, [out])
    return None if ran is None else ran[0]


def fits_decode(dispatcher: Dispatcher, width: int, *dtypes: mx.Dtype) -> bool:
    """Whether heads of `width` channels have a kernel."""
    return (
        not dispatcher.is_reference
        and width % 64 == 0
        and width <= MAX_HEAD
        and (width // LANES % 8 == 0 or width // LANES in (2, 4))
        and all(t in TYPES for t in dtypes)
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
        and (index_width is None or fits_index(index_width))
        and not {"attn_decode", "attn_window", "index_scores"} & set(dispatcher.fallbacks)
    )


def _fits_row(kv: Columns, table: RopeTable, is_rounded: bool) -> bool:
    n_plain = kv.width - 2 * table.cos.shape[1]
    return (
        not current().is_reference and _is_narrow(kv) and (n_plain % 64 == 0 or not is_rounded)
    )


def _is_narrow(x: Columns) -> bool:
    return x.width <= MAX_WIDTH and x.whole.dtype in TYPES
