"""Hyper-connections: how a branch reads and writes the residual streams.

Formulas: `spec/architecture.md` section 3 (manifold-constrained hyper-connections). Float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np

from ds4chat.ops.norms import rms_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperWeights:
    """Parameters of one branch: `fn` `(m*D, (2+m)*m)`, `scale` and `base` `((2+m)*m,)`."""

    fn: mx.array
    scale: mx.array
    base: mx.array
    n_streams: int
    rounds: int
    hc_eps: float
    rms_eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How a branch writes back: `post` `(L, m)`, `carry` `(L, m, m)` from stream j to k."""

    post: mx.array
    carry: mx.array


@cache
def _sum_matrices(m: int) -> tuple[mx.array, mx.array]:
    """0/1 matrices that give every cell of a flat m x m matrix its row's, its column's sum."""
    eye, ones = np.eye(m, dtype=np.float32), np.ones((m, m), np.float32)
    return mx.array(np.kron(eye, ones)), mx.array(np.kron(ones, eye))


def _sinkhorn(flat: mx.array, m: int, rounds: int, eps: float) -> mx.array:
    """Normalise `(L, m*m)`: columns, then `rounds - 1` times rows and columns."""
    rows, columns = _sum_matrices(m)
    floor = mx.array(eps, dtype=mx.float32)
    flat = flat / mx.addmm(floor, flat, columns)
    for _ in range(rounds - 1):
        flat = flat / mx.addmm(floor, flat, rows)
        flat = flat / mx.addmm(floor, flat, columns)
    return flat


def expand_scale(scale: mx.array, n_streams: int) -> mx.array:
    """`(3,)` to the `((2+m)*m,)` factors of pre, post and carry."""
    m = n_streams
    return mx.concatenate(
        [mx.broadcast_to(scale[i : i + 1], (width,)) for i, width in enumerate((m, m, m * m))]
    )


def read_streams(streams: mx.array, w: HyperWeights) -> tuple[mx.array, Mix]:
    """The branch's input `(L, D)` and how to write back, from streams `(L, m, D)`."""
    length, m = streams.shape[0], w.n_streams
    flat = rms_norm(streams.reshape(length, -1), None, w.rms_eps)
    z = (flat @ w.fn) * w.scale + w.base
    gates = mx.sigmoid(z[:, : 2 * m])
    pre = gates[:, :m] + w.hc_eps
    carry = mx.softmax(z[:, 2 * m :].reshape(length, m, m), axis=-1, precise=True) + w.hc_eps
    carry = _sinkhorn(carry.reshape(length, m * m), m, w.rounds, w.hc_eps)
    mixed = (pre[:, None, :] @ streams).squeeze(1)
    return mixed, Mix(post=2.0 * gates[:, m:], carry=carry.reshape(length, m, m))


def write_streams(streams: mx.array, mix: Mix, out: mx.array) -> mx.array:
    """`new[k] = post[k] * out + sum_j carry[j, k] * streams[j]`."""
    written = mix.post[:, :, None] * out.astype(mx.float32)[:, None, :]
    return written + mix.carry.swapaxes(1, 2) @ streams


def collapse_streams(streams: mx.array, w: HyperWeights) -> mx.array:
    """The output head's weighted sum of the streams: `(L, m, D)` to `(L, D)`."""
    flat = rms_norm(streams.reshape(streams.shape[0], -1), None, w.rms_eps)
    pre = mx.sigmoid((flat @ w.fn) * w.scale + w.base) + w.hc_eps
    return (pre[:, None, :] @ streams).squeeze(1)
