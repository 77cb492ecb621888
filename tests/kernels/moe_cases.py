"""Launches of the expert kernels with float64 references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants.base import decode, format_named
from ds4chat.ops import moe_kernels as mk
from ds4chat.ops.qmatmul import Walk
from tests.kernels.blocks import random_blocks
from tests.kernels.cases import MAX_ROWS, Case, Family, Rows, activations

N_PICKS = 6
LIMIT = 10.0


def make_picks(rng: np.random.Generator, n_experts: int) -> NDArray[np.int32]:
    """`(8, 6)` distinct ids a row; rows share experts, as a block of drafts does."""
    return np.stack([rng.permutation(n_experts)[:N_PICKS] for _ in range(MAX_ROWS)]).astype(
        np.int32
    )


def _stack(
    rng: np.random.Generator, name: str, n_experts: int, n_out: int, n_in: int
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    raw = random_blocks(rng, name, n_experts * n_out, n_in)
    values = decode(format_named(name), raw, (n_experts, n_out, n_in)).astype(np.float64)
    return raw.reshape(n_experts, n_out, -1), values


def _shape(n_in: int, n_out: int, n_experts: int) -> str:
    return f"{n_in}>{n_out} E{n_experts}"


def gate_up_family(
    backend: str, name: str, n_in: int, n_out: int, n_experts: int, kind: str
) -> Family:
    """`moe_gate_up`; `kind` is the type of x and of the hidden values."""
    rng = np.random.default_rng((n_in, n_out, n_experts))
    picks = make_picks(rng, n_experts)
    gate, gate_values = _stack(rng, name, n_experts, n_out, n_in)
    up, up_values = _stack(rng, name, n_experts, n_out, n_in)
    spread = 4.0 / (gate_values.std() * np.sqrt(n_in))  # some gates beyond the limit
    values = rng.standard_normal((MAX_ROWS, n_in)) * spread
    sent, x = activations(values.astype(np.float32), kind)
    a, b = (np.einsum("epoi,ei->epo", v[picks], x) for v in (gate_values, up_values))
    a, b = np.minimum(a, LIMIT), np.clip(b, -LIMIT, LIMIT)
    exact = a / (1 + np.exp(-a)) * b
    spec = mk.gate_up_spec(
        name, n_in, kind, N_PICKS, LIMIT, backend=backend, is_bf16_out=kind == "bfloat16"
    )

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=((sent[at], kind), (gate, "uint8"), (up, "uint8"), (picks[at], "int32")),
            n_blocks=mk.gate_up_blocks(spec, n * N_PICKS, n_out),
            outputs=(((n, N_PICKS, n_out), kind),),
            exact=(exact[at],),
        )

    label = f"{name} {kind}"
    return Family(
        kernel="moe_gate_up", format=label, shape=_shape(n_in, n_out, n_experts), make=make
    )


def shared_family(
    backend: str, name: str, n_in: int, n_out: int, kind: str, walk: Walk | None = None
) -> Family:
    """`moe_gate_up` without picks; `kind` is the type of x and of the hidden values."""
    rng = np.random.default_rng((n_in, n_out))
    gate, gate_values = _stack(rng, name, 1, n_out, n_in)
    up, up_values = _stack(rng, name, 1, n_out, n_in)
    spread = 4.0 / (gate_values.std() * np.sqrt(n_in))
    values = rng.standard_normal((MAX_ROWS, n_in)) * spread
    sent, x = activations(values.astype(np.float32), kind)
    a, b = np.minimum(x @ gate_values[0].T, LIMIT), np.clip(x @ up_values[0].T, -LIMIT, LIMIT)
    exact = a / (1 + np.exp(-a)) * b
    spec = mk.gate_up_spec(
        name, n_in, kind, 0, LIMIT, backend=backend, is_bf16_out=kind == "bfloat16", walk=walk
    )

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=((sent[at], kind), (gate[0], "uint8"), (up[0], "uint8")),
            n_blocks=mk.gate_up_blocks(spec, 1, n_out),
            outputs=(((n, n_out), kind),),
            exact=(exact[at],),
        )

    label = f"{name} {kind}"
    return Family(kernel="moe_shared", format=label, shape=f"{n_in}>{n_out}", make=make)


def down_family(
    backend: str,
    name: str,
    n_in: int,
    n_out: int,
    n_experts: int,
    kind: str,
    *,
    has_more: bool = False,
    walk: Walk | None = None,
) -> Family:
    """`moe_down`; `kind` is the type of the hidden values."""
    rng = np.random.default_rng((n_in, n_out, n_experts, 1))
    picks = make_picks(rng, n_experts)
    raw, values = _stack(rng, name, n_experts, n_out, n_in)
    weights = rng.uniform(0.1, 0.5, picks.shape).astype(np.float32)
    shape = (MAX_ROWS, N_PICKS, n_in)
    sent, hidden = activations(rng.standard_normal(shape).astype(np.float32), kind)
    exact = np.einsum("lp,lpoi,lpi->lo", weights.astype(np.float64), values[picks], hidden)
    more = rng.standard_normal(exact.shape).astype(np.float32) * np.float32(has_more)
    exact = exact + more
    spec = mk.down_spec(
        name, n_in, kind, N_PICKS,
        backend=backend, is_bf16_out=False, has_more=has_more, walk=walk,
    )  # fmt: skip

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=(
                (sent[at], kind), (raw, "uint8"), (picks[at], "int32"),
                (weights[at], "float32"), *(((more[at], "float32"),) if has_more else ()),
            ),
            n_blocks=mk.down_blocks(spec, n_out),
            outputs=(((n, n_out), "float32"),),
            exact=(exact[at],),
        )  # fmt: skip

    label = f"{name} {kind}" + (" more" if has_more else "")
    return Family(
        kernel="moe_down", format=label, shape=_shape(n_in, n_out, n_experts), make=make
    )


def route_family(n_experts: int) -> Family:
    """`route`: picks and weights; ties are left to the host's tests."""
    rng = np.random.default_rng(n_experts)
    logits = (3 * rng.standard_normal((MAX_ROWS, n_experts))).astype(np.float32)
    bias = rng.uniform(0, 0.5, n_experts).astype(np.float32)
    scores = np.sqrt(np.logaddexp(logits.astype(np.float64), 0))
    picks = np.argsort(-(scores + bias), axis=1, kind="stable")[:, :N_PICKS]
    chosen = np.take_along_axis(scores, picks, axis=1)
    weights = 1.5 * chosen / chosen.sum(axis=1, keepdims=True)
    spec = mk.route_spec(n_experts, N_PICKS, 1.5, has_table=False)

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=((logits[at], "float32"), (bias, "float32")),
            n_blocks=n,
            outputs=(((n, N_PICKS), "int32"), ((n, N_PICKS), "float32")),
            exact=(picks[at].astype(np.float64), weights[at]),
            row_axes=(0, 0),
        )

    return Family(kernel="route", format="float32", shape=f"E{n_experts}", make=make)


def families(backend: str) -> Iterator[Callable[[], Family]]:
    """Flash's formats at its widths, with few experts and outputs to keep references quick."""
    yield partial(route_family, 256)
    for name in ("IQ2_XXS", "MXFP4", "Q4_K"):
        yield partial(gate_up_family, backend, name, 4096, 72, 12, "bfloat16")
    for name in ("Q2_K", "MXFP4", "Q4_K"):
        yield partial(down_family, backend, name, 2048, 72, 12, "bfloat16")
        yield partial(down_family, backend, name, 2048, 72, 12, "bfloat16", has_more=True)
    for name in ("Q8_0", "MXFP4"):
        yield partial(shared_family, backend, name, 4096, 72, "bfloat16")
    yield partial(gate_up_family, backend, "IQ2_XXS", 4096, 72, 12, "float32")
    yield partial(down_family, backend, "Q2_K", 2048, 72, 12, "float32")
