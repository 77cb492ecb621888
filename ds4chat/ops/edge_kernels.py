"""Both ends of a pass, each in one launch: tokens to streams, streams to what a draft is told.

Each function returns None where its kernel is not for such arrays or cannot be built here. The
callers' stock operations give the same bits: widening is exact, and MLX adds the streams of a
mean in the same order on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.spec import KernelSpec, Tolerance

MAX_ROWS = 1 << 14
MAX_LAYERS = 8
"""Layers whose streams a launch can take."""
THREADS = 64
_VECTOR_BYTES = 16
_TABLES = (mx.float32, mx.bfloat16, mx.float16)


@cache
def embed_spec(n_streams: int, value_bytes: int, *, is_f16: bool) -> KernelSpec:
    """The kernel behind `embed_rows`, for a table of values of some size."""
    return KernelSpec(
        name="embed",
        source="embed.kernel",
        inputs=("ids", "table"),
        outputs=("streams",),
        threads=THREADS,
        constants={
            "M": n_streams,
            "VALUE_BYTES": value_bytes,
            "IS_F16": int(is_f16),
            "THREADS": THREADS,
        },
        tolerance=Tolerance(nmse=0.0, reason="widening is exact"),
    )


def embed_blocks(n_rows: int, dim: int, value_bytes: int) -> int:
    """Blocks of a launch of `embed_spec`."""
    return n_rows * -(-dim * value_bytes // (_VECTOR_BYTES * THREADS))


@cache
def capture_spec(n_layers: int, n_streams: int, *, is_bf16: bool = False) -> KernelSpec:
    """The kernel behind `capture_means`."""
    return KernelSpec(
        name="capture",
        source="capture.kernel",
        inputs=tuple(f"layer_{i}" for i in range(n_layers)),
        outputs=("means",),
        threads=THREADS,
        constants={
            "LAYERS": n_layers,
            "M": n_streams,
            "SHARE": f"{1 / n_streams!r}f",
            "THREADS": THREADS,
            "IS_BF16": int(is_bf16),
        },
        tolerance=Tolerance(
            nmse=4e-6 if is_bf16 else 1e-13, reason="float32 sums of a few streams, rounded"
        ),
    )


def capture_blocks(n_layers: int, n_rows: int, dim: int) -> int:
    """Blocks of a launch of `capture_spec`."""
    return n_rows * n_layers * -(-dim // (4 * THREADS))


def embed_rows(table: mx.array, ids: mx.array, n_streams: int) -> mx.array | None:
    """Rows `ids` `(L,)` int32 of `table` `(V, D)` in all streams: `(L, m, D)` float32.

    Ids are below V and not negative: others take the first or the last row.
    """
    n_rows, dim = int(ids.shape[0]), int(table.shape[1])
    if (
        current().is_reference
        or table.dtype not in _TABLES
        or ids.dtype != mx.int32
        or n_rows > MAX_ROWS
    ):
        return None
    size = table.dtype.size
    spec = embed_spec(n_streams, size, is_f16=table.dtype == mx.float16)
    output = Output(shape=(n_rows, n_streams, dim), dtype=mx.float32)
    made = current().run(spec, [ids, table], embed_blocks(n_rows, dim, size), [output])
    return None if made is None else made[0]


def capture_means(streams: Sequence[mx.array], dtype: mx.Dtype) -> mx.array | None:
    """Means over axis 1 of arrays `(L, m, D)` float32, side by side: `(L, n * D)`."""
    n_layers, (n_rows, n_streams, dim) = len(streams), streams[0].shape
    if (
        current().is_reference
        or n_layers > MAX_LAYERS
        or n_rows > MAX_ROWS
        or dtype not in (mx.float32, mx.bfloat16)
        or any(a.dtype != mx.float32 or a.shape != streams[0].shape for a in streams)
    ):
        return None
    output = Output(shape=(n_rows, n_layers * dim), dtype=dtype)
    n_blocks = capture_blocks(n_layers, n_rows, dim)
    spec = capture_spec(n_layers, n_streams, is_bf16=dtype == mx.bfloat16)
    made = current().run(spec, streams, n_blocks, [output])
    return None if made is None else made[0]
