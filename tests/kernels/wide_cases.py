"""Launches of the kernels for many rows with float64 references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants.base import decode, format_named
from ds4chat.ops import unpack_kernels as uk
from ds4chat.ops import wide_kernels as wk
from ds4chat.ops.prompt_attention import prompt_spec
from ds4chat.ops.spec import KernelSpec
from tests.kernels.blocks import random_blocks
from tests.kernels.cases import MAX_ROWS, Case, Family, Rows, activations, from_bf16, to_bf16

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


def wide_family(backend: str, name: str, n_in: int, n_out: int) -> Family:
    """`wide`: all rows go through one of three matrices."""
    rng = np.random.default_rng((n_in, n_out))
    stack = random_blocks(rng, name, N_EXPERTS * n_out, n_in)
    values = _rounded(name, stack).reshape(N_EXPERTS, n_out, n_in)[EXPERT]
    sent, x = activations(rng.standard_normal((MAX_ROWS, n_in)).astype(np.float32), "bfloat16")
    exact = x.astype(np.float64) @ values.T
    spec = wk.wide_spec(name, n_in, backend)

    def make(rows: Rows) -> Case:
        n = len(rows)
        keys = EXPERT * n + np.arange(n, dtype=np.int32)
        tiles = np.array([[EXPERT, 0, n, 0], [0, 0, 0, 0]], np.int32)
        return Case(
            spec=spec,
            inputs=(
                (_column(sent[list(rows)]), "bfloat16"),
                (stack.reshape(N_EXPERTS, n_out, -1), "uint8"),
                (tiles, "int32"),
                (keys, "int32"),
            ),
            n_blocks=wk.wide_blocks(spec, len(tiles), n_out),
            outputs=(((n, n_out), "float32"),),
            exact=(exact[list(rows)],),
        )

    return Family(kernel="wide", format=name, shape=f"K{n_in} N{n_out}", make=make)


def _column(rows: NDArray[Any]) -> NDArray[Any]:
    """Up to eight rows `(n, K)` as `pack_rows` lays them, and three columns of zeros."""
    n, n_in = rows.shape
    made = np.zeros((4, n_in // 32, MAX_ROWS, 32), rows.dtype)
    made[0, :, :n] = rows.reshape(n, n_in // 32, 32).swapaxes(0, 1)
    return made.reshape(4, -1)


def _rounded(name: str, raw: NDArray[np.uint8]) -> Doubles:
    """The values of rows of blocks as bf16 holds them."""
    quant = format_named(name)
    n_in = raw.shape[1] // quant.block_bytes * quant.block_values
    return from_bf16(to_bf16(decode(quant, raw, (len(raw), n_in)))).astype(np.float64)


def families(backend: str) -> Iterator[Callable[[], Family]]:
    """Everything, at Flash's row lengths."""
    for name in ("IQ2_XXS", "Q2_K", "Q8_0", "MXFP4"):
        yield partial(wide_family, backend, name, 4096, 200)
    for name in uk.STAGE_VALUES:
        yield partial(unpack_family, name, 4096)


def others(backend: str) -> Iterator[tuple[KernelSpec, tuple[str, ...]]]:
    """Specs with the types of their arguments that have no family: to be compiled alone."""
    half, f32, ids, raw = "bfloat16", "float32", "int32", "uint8"
    for name in ("IQ2_XXS", "MXFP4", "Q4_K", "Q8_0"):
        yield wk.wide_spec(name, 4096, backend, limit=10.0), (half, raw, raw, ids, ids, half)
    yield wk.pack_spec(6), (half, ids, ids, half)
    yield wk.plan_spec(256), (ids, ids)
    yield wk.sum_spec(256), (f32, ids, f32, f32)
    rest = (ids, f32, f32, f32, half)
    for keys, mask in (((), ()), ((half,), ()), ((half,), (f32,))):
        spec = prompt_spec(
            512, 64, 128, 1e-6, backend=backend, has_rows=bool(keys), has_mask=bool(mask)
        )
        yield spec, (half, half, *keys, *mask, *rest)
