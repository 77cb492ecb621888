"""Launches of the attention kernels with float64 references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import attention_kernels as ak
from ds4chat.ops import index_kernels as ik
from tests.kernels.cases import MAX_ROWS, Case, Family, Rows, activations

Doubles = NDArray[np.float64]
F32 = "float32"
EPS = 1e-6
ROPE = 64


def turned(x: Doubles, cos: Doubles, sin: Doubles) -> Doubles:
    """Rotate the last channels of `(L, ..., d)`; tables `(L, half)`."""
    out = x.copy()
    shape = (len(x),) + (1,) * (x.ndim - 2) + (-1,)
    c, s, at = cos.reshape(shape), sin.reshape(shape), x.shape[-1] - 2 * cos.shape[1]
    a, b = x[..., at::2], x[..., at + 1 :: 2]
    out[..., at::2], out[..., at + 1 :: 2] = a * c - b * s, a * s + b * c
    return out


def normed(x: Doubles) -> Doubles:
    """RMS norm over the last axis, without weights."""
    out: Doubles = x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS)
    return out


def _nearest(v: Doubles, codes: Doubles) -> Doubles:
    """The nearest of all codes from 0 up, ties to the even one, with the sign of v."""
    size = np.minimum(np.abs(v), codes[-1])
    high = np.clip(np.searchsorted(codes, size), 1, len(codes) - 1)
    low, up = codes[high - 1], codes[high]
    is_up = (size - low > up - size) | ((size - low == up - size) & (high % 2 == 0))
    out: Doubles = np.sign(v) * np.where(is_up, up, low)
    return out


def _e4m3() -> Doubles:
    bits = np.arange(127)
    exponent, mantissa = bits >> 3, (bits & 7) / 8
    out: Doubles = np.where(exponent, (1 + mantissa) * 2.0 ** (exponent - 7), mantissa / 64)
    return out


def rounded(x: Doubles, block: int, codes: Doubles, floor: float) -> Doubles:
    """Round to codes with a power-of-two scale for each block of the last axis."""
    parts = x.reshape(*x.shape[:-1], -1, block)
    top = np.maximum(np.abs(parts).max(-1, keepdims=True), floor)
    scale = 2.0 ** np.ceil(np.log2(top / codes[-1]))
    out: Doubles = (_nearest(parts / scale, codes) * scale).reshape(x.shape)
    return out


def fp8(x: Doubles) -> Doubles:
    """The e4m3 round trip."""
    return rounded(x, 64, _e4m3(), 1e-4)


def hadamard_fp4(x: Doubles) -> Doubles:
    """Hadamard, then the e2m1 round trip."""
    matrix = np.ones((1, 1))
    while len(matrix) < x.shape[-1]:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    codes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return rounded(x @ matrix / np.sqrt(len(matrix)), 32, codes, 6 * 2.0**-126)


def _tables(rng: np.random.Generator, rows: int) -> tuple[NDArray[np.float32], ...]:
    angle = rng.uniform(0, 6, (rows, ROPE // 2))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)


def rows_family(width: int, latent: int, kind: str, out_kind: str) -> Family:
    """`attn_rows`: key/value rows, and latents unless `latent` is 0; `kind` is of inputs."""
    rng = np.random.default_rng((width, latent))
    cos, sin = _tables(rng, MAX_ROWS)
    kv, held_kv = activations(_normal(rng, MAX_ROWS, width), kind)
    q_a, held_q = activations(_normal(rng, MAX_ROWS, latent or 1), kind)
    kv_norm, q_norm = _normal(rng, width), _normal(rng, latent or 1)
    row = normed(held_kv.astype(np.float64)) * kv_norm
    row[:, :-ROPE] = fp8(row[:, :-ROPE])
    row = turned(row, cos.astype(np.float64), sin.astype(np.float64))
    wide = normed(held_q.astype(np.float64)) * q_norm
    has_latent, has_wide = latent > 0, latent > 0 and kind != F32
    n_latents = has_latent + has_wide
    spec = ak.rows_spec(
        max(width, latent), EPS, has_latent=has_latent, has_wide=has_wide, is_rounded=True
    )

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        more = (((n, latent), kind), ((n, latent), F32))[:n_latents]
        first = ((q_a[at], kind), (q_norm, F32)) if has_latent else ()
        return Case(
            spec=spec,
            inputs=(
                (kv[at], kind), (kv_norm, F32), (cos[at], F32), (sin[at], F32), *first,
            ),
            n_blocks=(1 + has_latent) * n,
            outputs=(((n, width), out_kind), *more),
            exact=(row[at], *(wide[at] for _ in range(n_latents))),
            row_axes=(0,) * (1 + n_latents),
        )  # fmt: skip

    return Family(kernel="attn_rows", format=kind, shape=f"D{width} Q{latent}", make=make)


def index_family(width: int, n_heads: int, kind: str) -> Family:
    """`index_rows`: queries of `n_heads` heads, or with 0 normed rows."""
    rng = np.random.default_rng((width, n_heads))
    per_row = n_heads or 1
    cos, sin = _tables(rng, MAX_ROWS)
    x, held = activations(_normal(rng, MAX_ROWS, per_row * width), kind)
    norm = _normal(rng, width)
    wide = held.astype(np.float64).reshape(MAX_ROWS, per_row, width)
    if not n_heads:
        wide = normed(wide) * norm
    exact = hadamard_fp4(turned(wide, cos.astype(np.float64), sin.astype(np.float64)))
    spec = ik.index_rows_spec(width, EPS, per_row, is_normed=not n_heads, is_rounded=True)

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows) * per_row
        return Case(
            spec=spec,
            inputs=(
                (x[at].reshape(n, width), kind), (norm, F32), (cos[at], F32), (sin[at], F32),
            ),
            n_blocks=-(-n // 8),
            outputs=(((n, width), F32),),
            exact=(exact[at].reshape(n, width),),
        )  # fmt: skip

    def by_row(rows: Rows) -> Case:
        case = make(rows)
        return case if per_row == 1 else _folded(case, len(rows))

    shape = f"W{width} heads{n_heads}"
    return Family(kernel="index_rows", format=kind, shape=shape, make=by_row)


def _folded(case: Case, n_rows: int) -> Case:
    """The same launch with outputs `(rows, heads, width)`, so that axis 0 counts rows."""
    ((shape, kind),), (exact,) = case.outputs, case.exact
    folded = (n_rows, shape[0] // n_rows, shape[1])
    return Case(
        spec=case.spec,
        inputs=case.inputs,
        n_blocks=case.n_blocks,
        outputs=((folded, kind),),
        exact=(exact.reshape(folded),),
    )


def scores_family(width: int, n_heads: int, n_keys: int) -> Family:
    """`index_scores`."""
    rng = np.random.default_rng((width, n_heads, n_keys))
    q, w = _normal(rng, MAX_ROWS, n_heads, width), _normal(rng, MAX_ROWS, n_heads)
    keys, mask = _normal(rng, n_keys, width), np.zeros((MAX_ROWS, 137 + n_keys), np.float32)
    dots = np.maximum(q.astype(np.float64) @ keys.T.astype(np.float64), 0)
    exact = np.einsum("lh,lhc->lc", w.astype(np.float64), dots) * (width * n_heads) ** -0.5
    spec = ik.scores_spec(width, n_heads, 137)

    def make(rows: Rows) -> Case:
        at = list(rows)
        return Case(
            spec=spec,
            inputs=((q[at], F32), (w[at], F32), (keys, F32), (mask[at], F32)),
            n_blocks=len(rows) * ik.scores_blocks(n_keys),
            outputs=(((len(rows), n_keys), F32),),
            exact=(exact[at],),
        )

    shape = f"W{width} C{n_keys}"
    return Family(kernel="index_scores", format=F32, shape=shape, make=make)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    """Inputs of attention for eight rows; hidden keys are NaN, a third is not chosen."""

    q: NDArray[Any]
    keys: NDArray[Any]
    mask: NDArray[np.float32]
    sink: NDArray[np.float32]
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]
    heads: Doubles  # normed and turned queries
    values: Doubles  # keys without NaN


def _attention(width: int, n_heads: int, n_all: int, kind: str) -> _Attention:
    rng = np.random.default_rng((width, n_heads, n_all))
    cos, sin = _tables(rng, MAX_ROWS)
    q, held_q = activations(_normal(rng, MAX_ROWS, n_heads * width), kind)
    values = _normal(rng, n_all, width)
    seen = rng.uniform(size=(MAX_ROWS, n_all)) < 0.67
    seen[:, rng.choice(n_all, n_all // 8, replace=False)] = False
    values[~seen.any(axis=0)] = np.nan
    keys, held = activations(values, kind)
    mask = np.zeros((MAX_ROWS, 1 + n_all), np.float32)
    mask[:, 1:] = np.where(seen, 0, -np.inf)
    heads = normed(held_q.astype(np.float64).reshape(-1, n_heads, width))
    return _Attention(
        q=q,
        keys=keys,
        mask=mask,
        sink=3 * _normal(rng, n_heads),
        cos=cos,
        sin=sin,
        heads=turned(heads, cos.astype(np.float64), sin.astype(np.float64)),
        values=np.where(np.isnan(held), 0, held).astype(np.float64),
    )


def decode_family(
    backend: str, width: int, n_heads: int, n_keys: int, kind: str, window: int = 136
) -> Family:
    """`attn_decode`."""
    a = _attention(width, n_heads, window + n_keys, kind)
    scores = a.heads @ a.values.T * width**-0.5 + a.mask[:, None, 1:]
    weight = np.exp(scores)
    weight /= weight.sum(-1, keepdims=True) + np.exp(a.sink.astype(np.float64))[:, None]
    exact = turned(weight @ a.values, a.cos.astype(np.float64), -a.sin.astype(np.float64))
    spec = ak.decode_spec(
        width, n_heads, EPS, backend=backend, has_rows=n_keys > 0, is_bf16_out=kind != F32
    )
    rest = ((a.keys[window:], kind),) if n_keys else ()

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=(
                (a.q[at], kind), (a.keys[:window], kind), *rest, (a.mask[at], F32),
                (a.sink, F32), (a.cos[at], F32), (a.sin[at], F32),
            ),
            n_blocks=n * n_heads // ak.heads_of_block(n_heads),
            outputs=(((n, n_heads, width), kind),),
            exact=(exact[at],),
        )  # fmt: skip

    shape = f"D{width} C{n_keys}"
    return Family(kernel="attn_decode", format=kind, shape=shape, make=make)


def tiles_family(
    backend: str, width: int, n_heads: int, n_keys: int, window: int = 136
) -> Family:
    """`attn_tiles`; every chunk shows a key to every row."""
    kind = "bfloat16"
    a = _attention(width, n_heads, window + n_keys, kind)
    scores = a.heads @ a.values.T * width**-0.5 + a.mask[:, None, 1:]
    n_chunks, split = ak.n_chunks_of(window, n_keys), -(-window // 32) * 32
    slots = np.concatenate([np.arange(window), split + np.arange(n_keys)]) // ak.CHUNK
    tops = np.empty((MAX_ROWS, n_chunks, n_heads))
    totals, sums = np.empty_like(tops), np.empty((*tops.shape, width))
    for chunk in range(n_chunks):
        at = slots == chunk
        tops[:, chunk] = scores[:, :, at].max(-1)
        weight = np.exp(scores[:, :, at] - tops[:, chunk, :, None])
        totals[:, chunk], sums[:, chunk] = weight.sum(-1), weight @ a.values[at]
    spec = ak.tiles_spec(width, n_heads, EPS, backend=backend, has_rows=n_keys > 0)
    rest = ((a.keys[window:], kind),) if n_keys else ()

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=(
                (a.q[at], kind), (a.keys[:window], kind), *rest, (a.mask[at], F32),
                (a.cos[at], F32), (a.sin[at], F32),
            ),
            n_blocks=n * n_chunks * n_heads // ak.TILE_HEADS,
            outputs=(
                ((n, n_chunks, n_heads, width), F32),
                *(((n, n_chunks, n_heads), F32),) * 2,
            ),
            exact=(sums[at], tops[at], totals[at]),
            row_axes=(0, 0, 0),
        )  # fmt: skip

    shape = f"D{width} C{n_keys}"
    return Family(kernel="attn_tiles", format=kind, shape=shape, make=make)


def join_family(width: int, n_heads: int, n_chunks: int, kind: str) -> Family:
    """`attn_join`; the last chunk shows no key, what it holds may not be read."""
    rng = np.random.default_rng((width, n_heads, n_chunks))
    shape = (MAX_ROWS, n_chunks, n_heads)
    sums, tops = _normal(rng, *shape, width), _normal(rng, *shape)
    totals = rng.uniform(1, 9, shape).astype(np.float32)
    sums[:, -1], tops[:, -1], totals[:, -1] = np.nan, -np.inf, 0
    sink = _normal(rng, n_heads)
    cos, sin = _tables(rng, MAX_ROWS)
    share = np.exp(tops[:, :-1].astype(np.float64))
    bottom = (share * totals[:, :-1]).sum(1) + np.exp(sink.astype(np.float64))
    made = (share[..., None] * sums[:, :-1]).sum(1) / bottom[..., None]
    exact = turned(made, cos.astype(np.float64), -sin.astype(np.float64))
    spec = ak.join_spec(width, n_heads, is_bf16_out=kind != F32)

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        held = (sums[at], tops[at], totals[at], sink, cos[at], sin[at])
        return Case(
            spec=spec,
            inputs=tuple((array, F32) for array in held),
            n_blocks=n * n_heads,
            outputs=(((n, n_heads, width), kind),),
            exact=(exact[at],),
        )

    label = f"D{width} chunks {n_chunks}"
    return Family(kernel="attn_join", format=kind, shape=label, make=make)


def families(
    backend: str, width: int, n_heads: int, n_keys: int
) -> Iterator[Callable[[], Family]]:
    """All kernels, in the types of a GPU and in float32."""
    half = "bfloat16"
    yield partial(decode_family, backend, width, n_heads, n_keys, half)
    yield partial(decode_family, backend, width, n_heads, 0, half)
    yield partial(decode_family, backend, width, n_heads, n_keys, F32)
    yield partial(tiles_family, backend, width, -(-n_heads // 8) * 8, n_keys)
    yield partial(tiles_family, backend, width, 8, 0)
    yield partial(join_family, width, n_heads, 7, half)
    yield partial(rows_family, width, 2 * width, half, half)
    yield partial(rows_family, width, 2 * width, F32, F32)
    yield partial(rows_family, width, 0, F32, half)
    yield partial(index_family, 128, n_heads, F32)
    yield partial(index_family, 128, 0, F32)
    yield partial(scores_family, 128, n_heads, n_keys)
