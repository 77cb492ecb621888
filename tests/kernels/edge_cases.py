"""Launches of the kernels at both ends of a pass, with exact references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ds4chat.ops import edge_kernels as ek
from tests.kernels.cases import MAX_ROWS, Array, Case, Family, Rows, from_bf16, to_bf16

M, N_IDS = 4, 23
F32 = "float32"
KINDS = {F32: 4, "bfloat16": 2, "float16": 2}
"""Types of a table, and the bytes of a value."""


def table_of(kind: str, dim: int) -> tuple[Array, Array]:
    """A table `(23, dim)` as it is sent, and what it holds; not all of it is a plain number."""
    rng = np.random.default_rng((dim, KINDS[kind]))
    values = rng.standard_normal((N_IDS, dim)).astype(np.float32)
    values[:, ::7] = np.ldexp(values[:, ::7], -20)  # subnormal in half precision
    values[:, 1::11] = -0.0
    if kind == "bfloat16":
        bits = to_bf16(values)
        return bits, from_bf16(bits)
    sent = values.astype(kind)
    return sent, sent.astype(np.float32)


def embed_family(kind: str, dim: int, n_streams: int = M) -> Family:
    """`embed`; `kind` is the type of the table."""
    sent, held = table_of(kind, dim)
    ids = np.random.default_rng(dim).permutation(N_IDS)[:MAX_ROWS].astype(np.int32)
    ids[:2] = N_IDS - 1, 0
    exact = np.repeat(held[ids, None], n_streams, axis=1).astype(np.float64)
    spec = ek.embed_spec(n_streams, KINDS[kind], is_f16=kind == "float16")

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=((ids[at], "int32"), (sent, kind)),
            n_blocks=ek.embed_blocks(n, dim, KINDS[kind]),
            outputs=(((n, n_streams, dim), F32),),
            exact=(exact[at],),
        )

    return Family(kernel="embed", format=kind, shape=f"D{dim} M{n_streams}", make=make)


def capture_family(n_layers: int, dim: int, n_streams: int = M, kind: str = F32) -> Family:
    """`capture` behind `n_layers` layers; `kind` is the type of the means."""
    rng = np.random.default_rng((n_layers, dim, n_streams))
    shape = (n_layers, MAX_ROWS, n_streams, dim)
    streams = rng.standard_normal(shape).astype(np.float32)
    means = streams.astype(np.float64).mean(axis=2)
    exact = means.swapaxes(0, 1).reshape(MAX_ROWS, -1)

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=ek.capture_spec(n_layers, n_streams, is_bf16=kind == "bfloat16"),
            inputs=tuple((layer[at], F32) for layer in streams),
            n_blocks=ek.capture_blocks(n_layers, n, dim),
            outputs=(((n, n_layers * dim), kind),),
            exact=(exact[at],),
        )

    return Family(kernel="capture", format=kind, shape=f"N{n_layers} D{dim}", make=make)


def families(dim: int) -> Iterator[Callable[[], Family]]:
    """Both kernels at a model's width, then at widths that 16 bytes do not divide."""
    for kind in KINDS:
        yield partial(embed_family, kind, dim)
    for n_layers in (3, 8):
        yield partial(capture_family, n_layers, dim)
    for kind in KINDS:
        yield partial(embed_family, kind, dim // 2 + 3)
    yield partial(capture_family, 1, dim // 2 + 3)
    yield partial(capture_family, 3, dim, kind="bfloat16")
