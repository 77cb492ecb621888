"""Launches of the hyper-connection kernels with float64 references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import hyper_kernels as hk
from tests.kernels.cases import MAX_ROWS, Case, Family, Rows, activations

M = hk.N_STREAMS
ROUNDS, HC_EPS, RMS_EPS = 20, 1e-6, 1e-6
Doubles = NDArray[np.float64]


def project(streams: Doubles, fn: Doubles, chunk: int) -> Doubles:
    """The partial sums that `hyper_post` leaves: `(chunks, L, n_out + pairs)`."""
    length, m, dim = streams.shape
    parts = streams.reshape(length, m, dim // chunk, chunk)
    weight = fn.reshape(m, dim // chunk, chunk, -1)
    gates = np.einsum("lmck,mcko->clo", parts, weight)
    pairs = np.einsum("lack,lbck->clab", parts, parts)
    upper = np.triu_indices(m)
    return np.concatenate([gates, pairs[:, :, upper[0], upper[1]]], axis=2)


def balance(z: Doubles) -> Doubles:
    """`(L, m, m)` logits to the doubly stochastic carry (architecture.md section 3)."""
    e = np.exp(z - z.max(axis=2, keepdims=True))
    c: Doubles = e / e.sum(axis=2, keepdims=True) + HC_EPS
    c = c / (c.sum(axis=1, keepdims=True) + HC_EPS)
    for _ in range(ROUNDS - 1):
        c = c / (c.sum(axis=2, keepdims=True) + HC_EPS)
        c = c / (c.sum(axis=1, keepdims=True) + HC_EPS)
    return c


def _sigmoid(z: Doubles) -> Doubles:
    out: Doubles = 1 / (1 + np.exp(-z))
    return out


def post_family(dim: int, n_out: int, kind: str) -> Family:
    """`hyper_post`; `kind` is the type of the branch's output."""
    rng = np.random.default_rng((dim, n_out))
    streams = rng.standard_normal((MAX_ROWS, M, dim)).astype(np.float32)
    sent, out = activations(rng.standard_normal((MAX_ROWS, dim)).astype(np.float32), kind)
    post = rng.uniform(0, 2, (MAX_ROWS, M)).astype(np.float32)
    carry = rng.uniform(0, 1, (MAX_ROWS, M, M)).astype(np.float32)
    fn = (rng.standard_normal((M * dim, n_out)) / np.sqrt(dim)).astype(np.float32)
    new = post[:, :, None].astype(np.float64) * out[:, None].astype(np.float64)
    new = new + np.einsum("ljk,ljd->lkd", carry.astype(np.float64), streams)
    sums = project(new, fn.astype(np.float64), hk.CHUNK)
    spec = hk.post_spec(n_out)

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        f32 = "float32"
        return Case(
            spec=spec,
            inputs=(
                (streams[at], f32), (sent[at], kind), (post[at], f32), (carry[at], f32),
                (fn, f32),
            ),
            n_blocks=hk.post_blocks(n, dim),
            outputs=(((n, M, dim), f32), ((dim // hk.CHUNK, n, sums.shape[2]), f32)),
            exact=(new[at], sums[:, at]),
            row_axes=(0, 1),
        )  # fmt: skip

    return Family(kernel="hyper_post", format=kind, shape=f"D{dim} gates{n_out}", make=make)


def pre_family(dim: int, n_out: int, kind: str, *, is_normed: bool) -> Family:
    """`hyper_pre`; `kind` is the type of x."""
    rng = np.random.default_rng((dim, n_out, 1))
    streams = rng.standard_normal((MAX_ROWS, M, dim)).astype(np.float32)
    fn = rng.standard_normal((M * dim, n_out)) / np.sqrt(M * dim)
    scale = rng.uniform(0.5, 1.5, 1 if n_out == M else n_out).astype(np.float32)
    base = rng.standard_normal(n_out).astype(np.float32)
    base[2 * M :] *= 8  # far from balance: 20 rounds do not converge, so their order shows
    norm = rng.uniform(0.5, 1.5, dim).astype(np.float32)
    partials = project(streams.astype(np.float64), fn, hk.CHUNK).astype(np.float32)
    rms = np.sqrt((streams.astype(np.float64) ** 2).mean(axis=(1, 2)) + RMS_EPS)
    z = partials[..., :n_out].astype(np.float64).sum(axis=0) / rms[:, None] * scale + base
    mixed = np.einsum("ls,lsd->ld", _sigmoid(z[:, :M]) + HC_EPS, streams)
    if is_normed:
        mixed = mixed / np.sqrt((mixed**2).mean(axis=1, keepdims=True) + RMS_EPS) * norm
    exact = [mixed]
    if n_out > M:
        exact += [2 * _sigmoid(z[:, M : 2 * M]), balance(z[:, 2 * M :].reshape(-1, M, M))]
    spec = hk.pre_spec(
        n_out, ROUNDS, HC_EPS, RMS_EPS, is_normed=is_normed, is_bf16=kind == "bfloat16"
    )

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        f32 = "float32"
        gates = (((n, M), f32), ((n, M, M), f32)) if n_out > M else ()
        return Case(
            spec=spec,
            inputs=(
                (streams[at], f32), (np.ascontiguousarray(partials[:, at]), f32),
                (scale, f32), (base, f32), (norm, f32),
            ),
            n_blocks=hk.pre_blocks(n, dim),
            outputs=(((n, dim), kind), *gates),
            exact=tuple(e[at] for e in exact),
            row_axes=(0,) * len(exact),
        )  # fmt: skip

    return Family(kernel="hyper_pre", format=kind, shape=f"D{dim} gates{n_out}", make=make)


def families(dim: int) -> Iterator[Callable[[], Family]]:
    """Both kernels, for a branch and for an output head."""
    yield partial(post_family, dim, 24, "bfloat16")
    yield partial(post_family, dim, 24, "float32")
    yield partial(post_family, dim, 4, "float32")
    yield partial(pre_family, dim, 24, "bfloat16", is_normed=True)
    yield partial(pre_family, dim, 24, "float32", is_normed=True)
    yield partial(pre_family, dim, 4, "float32", is_normed=False)
