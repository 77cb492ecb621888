"""Launches of the attention kernels with float64 references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops import attention_kernels as ak
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
    spec = ak.index_rows_spec(width, EPS, per_row, is_normed=not n_heads, is_rounded=True)

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
    spec = ak.scores_spec(width, n_heads, 137)

    def make(rows: Rows) -> Case:
        at = list(rows)
        return Case(
            spec=spec,
            inputs=((q[at], F32), (w[at], F32), (keys, F32), (mask[at], F32)),
            n_blocks=len(rows) * -(-n_keys // 64),
            outputs=(((len(rows), n_keys), F32),),
            exact=(exact[at],),
        )

    shape = f"W{width} C{n_keys}"
    return Family(kernel="index_scores", format=F32, shape=shape, make=make)


def decode_family(
    backend: str, width: int, n_heads: int, n_keys: int, kind: str, window: int = 136
) -> Family:
    """`attn_decode`; hidden keys are NaN, and a third of what is visible is not chosen."""
    rng = np.random.default_rng((width, n_heads, n_keys))
    cos, sin = _tables(rng, MAX_ROWS)
    q, held_q = activations(_normal(rng, MAX_ROWS, n_heads * width), kind)
    n_all = window + n_keys
    values = _normal(rng, n_all, width)
    seen = rng.uniform(size=(MAX_ROWS, n_all)) < 0.67
    seen[:, rng.choice(n_all, n_all // 8, replace=False)] = False
    values[~seen.any(axis=0)] = np.nan
    keys, held = activations(values, kind)
    sink = 3 * _normal(rng, n_heads)
    mask = np.zeros((MAX_ROWS, 1 + n_all), np.float32)
    mask[:, 1:] = np.where(seen, 0, -np.inf)
    cos64, sin64 = cos.astype(np.float64), sin.astype(np.float64)
    heads = turned(normed(held_q.astype(np.float64).reshape(-1, n_heads, width)), cos64, sin64)
    clean = np.where(np.isnan(held), 0, held).astype(np.float64)
    scores = heads @ clean.T * width**-0.5 + mask[:, None, 1:]
    weight = np.exp(scores)
    weight /= weight.sum(-1, keepdims=True) + np.exp(sink.astype(np.float64))[:, None]
    exact = turned(weight @ clean, cos64, -sin64)
    spec, per_row = ak.decode_form(
        width,
        n_heads,
        EPS,
        backend=backend,
        has_rows=n_keys > 0,
        is_half=kind != F32,
        is_bf16_out=kind != F32,
    )
    rest = ((keys[window:], kind),) if n_keys else ()

    def make(rows: Rows) -> Case:
        at, n = list(rows), len(rows)
        return Case(
            spec=spec,
            inputs=(
                (q[at], kind), (keys[:window], kind), *rest, (mask[at], F32), (sink, F32),
                (cos[at], F32), (sin[at], F32),
            ),
            n_blocks=n * per_row,
            outputs=(((n, n_heads, width), kind),),
            exact=(exact[at],),
        )  # fmt: skip

    shape = f"D{width} C{n_keys}"
    return Family(kernel="attn_decode", format=kind, shape=shape, make=make)


def families(
    backend: str, width: int, n_heads: int, n_keys: int
) -> Iterator[Callable[[], Family]]:
    """All kernels, in the types of a GPU and in float32."""
    half = "bfloat16"
    yield partial(decode_family, backend, width, n_heads, n_keys, half)
    yield partial(decode_family, backend, width, n_heads, 0, half)
    yield partial(decode_family, backend, width, n_heads, n_keys, F32)
    yield partial(rows_family, width, 2 * width, half, half)
    yield partial(rows_family, width, 2 * width, F32, F32)
    yield partial(rows_family, width, 0, F32, half)
    yield partial(index_family, 128, n_heads, F32)
    yield partial(index_family, 128, 0, F32)
    yield partial(scores_family, 128, n_heads, n_keys)
