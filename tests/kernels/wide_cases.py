"""Launches of the kernels for many rows with float64 references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants.base import decode, format_named
from ds4chat.ops import unpack_kernels as uk
from ds4chat.ops import wide_kernels as wk
from tests.kernels.blocks import random_blocks
from tests.kernels.cases import MAX_ROWS, Case, Family, Rows, activations, from_bf16, to_bf16

LIMIT = 10.0
N_EXPERTS, EXPERT = 3, 1
Doubles = NDArray[np.float64]


def unpack_family(name: str, n_in: int) -> Family:
    """`unpack`: the rows are the weight's."""
    raw = random_blocks(np.random.default_rng(n_in), name, MAX_ROWS, n_in)
    exact = _rounded(name, raw)

    def make(rows: Rows) -> Case:
        n = len(rows)
        return Case(
            spec=uk.unpack_spec(name, n_in),
            inputs=((raw[list(rows)], "uint8"),),
            n_blocks=uk.unpack_blocks(name, n, n_in),
            outputs=(((n, n_in), "bfloat16"),),
            exact=(exact[list(rows)],),
        )

    return Family(kernel="unpack", format=name, shape=f"K{n_in}", make=make)


def wide_family(backend: str, name: str, n_in: int, n_out: int, *, is_gated: bool) -> Family:
    """`wide`: all rows go through one of three matrices; gated through two of three each."""
    rng = np.random.default_rng((n_in, n_out))
    stacks = [
        random_blocks(rng, name, N_EXPERTS * n_out, n_in) for _ in range(2 if is_gated else 1)
    ]
    values = [_rounded(name, s).reshape(N_EXPERTS, n_out, n_in)[EXPERT] for s in stacks]
    spread = 4.0 / (values[0].std() * np.sqrt(n_in))
    drawn = (rng.standard_normal((MAX_ROWS, n_in)) * spread).astype(np.float32)
    sent, x = activations(drawn, "bfloat16")
    exact = x.astype(np.float64) @ values[0].T
    if is_gated:
        gate = np.minimum(exact, LIMIT)
        exact = gate / (1 + np.exp(-gate)) * np.clip(x @ values[1].T, -LIMIT, LIMIT)
    spec = wk.wide_spec(
        name,
        n_in,
        backend,
        limit=LIMIT if is_gated else None,
        is_in_place=(not is_gated, is_gated),
    )

    def make(rows: Rows) -> Case:
        n = len(rows)
        keys = EXPERT * n + np.arange(n, dtype=np.int32)
        tiles = np.array([[EXPERT, 0, n, 0], [0, 0, 0, 0]], np.int32)
        weights = ((s.reshape(N_EXPERTS, n_out, -1), "uint8") for s in stacks)
        return Case(
            spec=spec,
            inputs=(
                (sent[list(rows)], "bfloat16"),
                *weights,
                (tiles, "int32"),
                (keys, "int32"),
            ),
            n_blocks=wk.wide_blocks(spec, len(tiles), n_out),
            outputs=(((n, n_out), "bfloat16" if is_gated else "float32"),),
            exact=(exact[list(rows)],),
        )

    kernel = "wide_gated" if is_gated else "wide"
    return Family(kernel=kernel, format=name, shape=f"K{n_in} N{n_out}", make=make)


def _rounded(name: str, raw: NDArray[np.uint8]) -> Doubles:
    """The values of rows of blocks as bf16 holds them."""
    quant = format_named(name)
    n_in = raw.shape[1] // quant.block_bytes * quant.block_values
    return from_bf16(to_bf16(decode(quant, raw, (len(raw), n_in)))).astype(np.float64)


def families(backend: str) -> Iterator[Callable[[], Family]]:
    """Everything, at Flash's row lengths."""
    yield partial(wide_family, backend, "IQ2_XXS", 4096, 200, is_gated=True)
    yield partial(wide_family, backend, "Q2_K", 2048, 200, is_gated=False)
    yield partial(wide_family, backend, "Q8_0", 4096, 200, is_gated=False)
    yield partial(wide_family, backend, "MXFP4", 4096, 200, is_gated=True)
    for name in uk.STAGE_VALUES:
        yield partial(unpack_family, name, 4096)
