"""The formulas that target and draft share, one row or one matrix at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tests.reference.pair import Array, Sizes, Weights


def rms_norm(x: Array, weight: Array | None, eps: float) -> Array:
    """Root-mean-square norm over the last axis."""
    unit = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    out: Array = unit if weight is None else unit * weight
    return out


def sigmoid(x: Array) -> Array:
    out: Array = 1.0 / (1.0 + np.exp(-x))
    return out


# Rotary positions.


def plain_frequencies(sizes: Sizes) -> Array:
    """Angles per position of the rotary pairs, layers without compressed rows."""
    pairs = np.arange(sizes.rope_dim // 2)
    out: Array = sizes.rope_base ** (-2.0 * pairs / sizes.rope_dim)
    return out


def yarn_frequencies(sizes: Sizes) -> Array:
    """The same of layers with compressed rows: YaRN without a temperature."""
    rd = sizes.rope_dim

    def corrected(rotations: float) -> float:
        turns = sizes.yarn_context / (rotations * 2 * math.pi)
        return rd * math.log(turns) / (2 * math.log(sizes.compress_base))

    low = max(math.floor(corrected(sizes.yarn_fast)), 0)
    high = min(math.ceil(corrected(sizes.yarn_slow)), rd - 1)
    out = np.zeros(rd // 2)
    for i in range(rd // 2):
        frequency = sizes.compress_base ** (-2.0 * i / rd)
        keep = 1.0 - min(max((i - low) / (high - low), 0.0), 1.0)
        out[i] = frequency * keep + frequency / sizes.yarn_factor * (1.0 - keep)
    return out


def rotate(x: Array, position: int, frequencies: Array, *, back: bool = False) -> Array:
    """Turn the last channels of `(..., d)` by the angles of `position` (of its negative)."""
    angles = frequencies * (-position if back else position)
    first = x.shape[-1] - 2 * len(frequencies)
    a, b = x[..., first::2], x[..., first + 1 :: 2]
    out = x.copy()
    out[..., first::2] = a * np.cos(angles) - b * np.sin(angles)
    out[..., first + 1 :: 2] = a * np.sin(angles) + b * np.cos(angles)
    return out


# Round trips.


def to_e4m3(x: Array) -> Array:
    """Nearest FP8 e4m3 value, ties to even, clamped to 448."""
    return _nearest(np.clip(x, -448.0, 448.0), lowest=-6, bits=3)


def to_e2m1(x: Array) -> Array:
    """Nearest FP4 e2m1 value, ties to even, clamped to 6."""
    return _nearest(np.clip(x, -6.0, 6.0), lowest=0, bits=1)


def _nearest(x: Array, *, lowest: int, bits: int) -> Array:
    exponent = np.where(x == 0.0, lowest, np.maximum(np.frexp(x)[1] - 1, lowest))
    step = np.ldexp(1.0, exponent - bits)
    out: Array = np.rint(x / step) * step
    return out


def power_scale(amax: Array, largest: float) -> Array:
    """The smallest powers of two that are at least `amax / largest`."""
    mantissa, exponent = np.frexp(amax / largest)
    out: Array = np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
    return out


def fp8_round_trip(x: Array, rope_dim: int) -> Array:
    """`(..., d)` with all but the rotary channels through e4m3, in blocks of 64."""
    n = x.shape[-1] - rope_dim
    blocks = x[..., :n].reshape(*x.shape[:-1], n // 64, 64)
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = power_scale(np.maximum(amax, 1e-4), 448.0)
    out = x.copy()
    out[..., :n] = (to_e4m3(blocks / scale) * scale).reshape(*x.shape[:-1], n)
    return out


def fp4_round_trip(x: Array) -> Array:
    """`(..., d)` through e2m1, in blocks of 32."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = power_scale(np.maximum(amax, 6 * 2.0**-126), 6.0)
    out: Array = (to_e2m1(blocks / scale) * scale).reshape(x.shape)
    return out


def hadamard(size: int) -> Array:
    """The normalised Hadamard matrix, by Sylvester's construction."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(size)


# Hyper-connections.


def hyper_pre(
    streams: Array, w: Weights, name: str, sizes: Sizes
) -> tuple[Array, Array, Array]:
    """`(m, D)` streams of one token to the branch's input, `post` and the mixing matrix."""
    m = sizes.streams
    flat = streams.reshape(-1)
    z = w[f"{name}_fn.weight"] @ rms_norm(flat, None, sizes.rms_eps)
    scale, base = w[f"{name}_scale.weight"], w[f"{name}_base.weight"]
    pre = sigmoid(z[:m] * scale[0] + base[:m]) + sizes.hc_eps
    post = 2 * sigmoid(z[m : 2 * m] * scale[1] + base[m : 2 * m])
    mixing = sinkhorn((z[2 * m :] * scale[2] + base[2 * m :]).reshape(m, m), sizes)
    return pre @ streams, post, mixing


def sinkhorn(c: Array, sizes: Sizes) -> Array:
    """Softmax over the second index, then columns, then rounds of rows and columns."""
    c = np.exp(c - c.max(axis=1, keepdims=True))
    c = c / c.sum(axis=1, keepdims=True) + sizes.hc_eps
    c = c / (c.sum(axis=0, keepdims=True) + sizes.hc_eps)
    for _ in range(sizes.sinkhorn_rounds - 1):
        c = c / (c.sum(axis=1, keepdims=True) + sizes.hc_eps)
        c = c / (c.sum(axis=0, keepdims=True) + sizes.hc_eps)
    return c


def hyper_post(y: Array, streams: Array, post: Array, mixing: Array) -> Array:
    """New streams: the branch's output, and the old streams through the mixing matrix."""
    out = np.zeros_like(streams)
    for k in range(len(streams)):
        out[k] = post[k] * y
        for j in range(len(streams)):
            out[k] += mixing[j, k] * streams[j]
    return out


def hyper_head(streams: Array, w: Weights, name: str, sizes: Sizes) -> Array:
    """`(m, D)` streams of one token to the head's input `(D,)`, before the last norm."""
    z = w[f"{name}_fn.weight"] @ rms_norm(streams.reshape(-1), None, sizes.rms_eps)
    scale, base = w[f"{name}_scale.weight"], w[f"{name}_base.weight"]
    pre = sigmoid(z * scale[0] + base) + sizes.hc_eps
    out: Array = pre @ streams
    return out


# Attention.


def attend(q: Array, keys: Array, sinks: Array) -> Array:
    """`(H, d)` queries over `(n, d)` rows that are keys and values; a sink in the sum."""
    out = np.zeros_like(q)
    for head in range(len(q)):
        scores = keys @ q[head] / math.sqrt(q.shape[-1])
        top = max(scores.max(), sinks[head])
        weights = np.exp(scores - top)
        out[head] = weights @ keys / (weights.sum() + math.exp(sinks[head] - top))
    return out


def project_out(o: Array, w: Weights, sizes: Sizes) -> Array:
    """`(H, d)` heads of one token through the grouped output projection to `(D,)`."""
    wide = o.reshape(sizes.groups, -1)
    first = w["attn_output_a.weight"].reshape(sizes.groups, -1, wide.shape[-1])
    low = np.concatenate([first[g] @ wide[g] for g in range(sizes.groups)])
    out: Array = w["attn_output_b.weight"] @ low
    return out


# Experts.


def swiglu(x: Array, gate: Array, up: Array, down: Array, clamp: float) -> Array:
    """One expert: the gate is clamped from above, the other half on both sides."""
    a = np.minimum(gate @ x, clamp)
    b = np.clip(up @ x, -clamp, clamp)
    out: Array = down @ (a * sigmoid(a) * b)
    return out


def mixture(
    x: Array, w: Weights, sizes: Sizes, chosen: NDArray[np.int32] | None
) -> tuple[Array, float]:
    """Routed and shared experts of one token; also the router's margin (inf: hash-routed)."""
    score = np.sqrt(np.logaddexp(0.0, w["ffn_gate_inp.weight"] @ x))
    margin = math.inf
    if chosen is None:
        biased = score + w["exp_probs_b.bias"]
        order = np.argsort(-biased, kind="stable")
        chosen = order[: sizes.experts_used].astype(np.int32)
        if len(order) > sizes.experts_used:
            margin = float(biased[chosen[-1]] - biased[order[sizes.experts_used]])
    total = sum(score[e] for e in chosen)
    y = swiglu(
        x,
        w["ffn_gate_shexp.weight"],
        w["ffn_up_shexp.weight"],
        w["ffn_down_shexp.weight"],
        sizes.clamp,
    )
    for e in chosen:
        routed = swiglu(
            x,
            w["ffn_gate_exps.weight"][e],
            w["ffn_up_exps.weight"][e],
            w["ffn_down_exps.weight"][e],
            sizes.clamp,
        )
        y = y + score[e] / total * sizes.expert_scale * routed
    return y, margin
