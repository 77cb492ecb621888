"""Launches of a draft's Markov chain and of its norms, with exact references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ds4chat.ops import markov_kernels as mk
from ds4chat.ops.norms import norm_spec
from tests.kernels.cases import MAX_ROWS, Array, Case, Family, Rows, activations

F32, EPS, RANK = "float32", 1e-6, 96


def tops_of(rows: Array) -> Array:
    """What `markov_pick` leaves of rows `(L, V)` without NaN: `(L, parts, 3)`."""
    n_rows, n_logits = rows.shape
    tops = np.zeros((n_rows, mk.n_parts(n_logits), 3), np.float32)
    tops[:, :, 0] = -np.inf
    for part, at in enumerate(range(0, n_logits, 4 * mk.THREADS)):
        piece = rows[:, at : at + 4 * mk.THREADS]
        tops[:, part, 0] = piece.max(axis=1)
        tops[:, part, 1] = at + piece.argmax(axis=1)
    return tops


def _rows(n_logits: int, seed: int = 0) -> Array:
    rng = np.random.default_rng((n_logits, seed))
    return rng.standard_normal((MAX_ROWS, n_logits)).astype(np.float32)


def pick_family(n_logits: int) -> Family:
    """`markov_pick`; `n_logits` fill all parts."""
    base, change = _rows(n_logits), _rows(n_logits, 1)
    sums = base + change
    exact = base.astype(np.float64) + change
    tops = tops_of(sums).astype(np.float64)

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=mk.pick_spec(),
            inputs=((base[at], F32), (change[at], F32)),
            n_blocks=n * mk.n_parts(n_logits),
            outputs=(((n, n_logits), F32), ((n, *tops.shape[1:]), F32)),
            exact=(exact[at], tops[at]),
            row_axes=(0, 0),
        )

    return Family(kernel="markov_pick", format=F32, shape=f"V{n_logits}", make=make)


def memory_family(n_logits: int, kind: str) -> Family:
    """`markov_memory`; `kind` is the type of the table."""
    rows = _rows(n_logits)
    tops, table = tops_of(rows), np.random.default_rng(1).standard_normal((n_logits, RANK))
    sent, held = activations(table.astype(np.float32), kind)
    exact = held[rows.argmax(axis=1)].astype(np.float64)

    def make(rows: Rows) -> Case:
        at = list(rows)
        return Case(
            spec=mk.memory_spec(),
            inputs=((tops[at], F32), (sent, kind)),
            n_blocks=len(at),
            outputs=(((len(at), RANK), F32),),
            exact=(exact[at],),
        )

    return Family(kernel="markov_memory", format=kind, shape=f"V{n_logits}", make=make)


def tell_family(n_logits: int, dim: int) -> Family:
    """`markov_tell`."""
    rng, logits = np.random.default_rng(dim), _rows(n_logits)
    logits[range(MAX_ROWS), range(MAX_ROWS)] = 9.0  # places as large as the other numbers
    tops = tops_of(logits)
    hidden = rng.standard_normal((MAX_ROWS, dim)).astype(np.float32)
    memory = rng.standard_normal((MAX_ROWS, RANK)).astype(np.float32)
    weight = rng.standard_normal(dim + RANK).astype(np.float32)
    bias = np.array([0.75], np.float32)
    feature = np.concatenate([hidden, memory], axis=1).astype(np.float64)
    confidences = feature @ weight.astype(np.float64) + 0.75
    exact = np.stack([logits.argmax(axis=1), confidences, logits.max(axis=1)])

    def make(rows: Rows) -> Case:
        at = list(rows)
        inputs = [(tops[[i]], F32) for i in at] + [(memory[[i]], F32) for i in at]
        return Case(
            spec=mk.tell_spec(len(at)),
            inputs=(*inputs, (hidden[at], F32), (weight, F32), (bias, F32)),
            n_blocks=len(at),
            outputs=(((3, len(at)), F32),),
            exact=(exact[:, at],),
            row_axes=(1,),
        )

    return Family(kernel="markov_tell", format=F32, shape=f"V{n_logits} D{dim}", make=make)


def norm_family(dim: int, kind: str, out_kind: str) -> Family:
    """`norm_rows` from `kind` to `out_kind`."""
    rng = np.random.default_rng(dim)
    values = rng.standard_normal((MAX_ROWS, dim)).astype(np.float32) * 3
    sent, held = activations(values, kind)
    weight = rng.standard_normal(dim).astype(np.float32)
    wide = held.astype(np.float64)
    exact = wide / np.sqrt(np.square(wide).mean(1, keepdims=True) + EPS) * weight

    def make(rows: Rows) -> Case:
        at = list(rows)
        return Case(
            spec=norm_spec(EPS, is_bf16_out=out_kind == "bfloat16"),
            inputs=((sent[at], kind), (weight, F32)),
            n_blocks=len(at),
            outputs=(((len(at), dim), out_kind),),
            exact=(exact[at],),
        )

    return Family(kernel="norm_rows", format=f"{kind}>{out_kind}", shape=f"D{dim}", make=make)


def families(n_logits: int, dim: int) -> Iterator[Callable[[], Family]]:
    """All kernels at a model's widths, then where 16 bytes do not divide them."""
    half = "bfloat16"
    for n in (n_logits, n_logits // 2 + 3):
        yield partial(pick_family, n)
        for kind in (F32, half):
            yield partial(memory_family, n, kind)
    yield partial(tell_family, n_logits, dim)
    for kind, out_kind in ((half, half), (F32, F32), (F32, half)):
        yield partial(norm_family, dim, kind, out_kind)
