"""Attention of a few heads over one shared key/value row per position, with sinks.

Slots are fixed by position so that a row's sums run in one order whatever is evaluated beside
it: slot 0 is the sink, then the window, then the compressed rows by index.
"""

from __future__ import annotations

import mlx.core as mx

from ds4chat.ops.blocks import Blocks
from ds4chat.ops.linear import Linear


def gather_keys(parts: list[mx.array], is_live: mx.array) -> mx.array:
    """Put `(n_i, d)` rows behind the sink's zero slot; rows that no query sees become zero.

    Args:
        parts: window rows, then compressed rows.
        is_live: `(S,)` bool over all slots, the sink's included.

    Returns:
        `(S, d)` float32. Dead slots may hold anything, NaN included; none of it gets through.
    """
    zero = mx.zeros((1, parts[0].shape[1]), dtype=mx.float32)
    keys = mx.concatenate([zero, *[p.astype(mx.float32) for p in parts]], axis=0)
    return mx.where(is_live[:, None], keys, 0.0)


def attend(q: mx.array, keys: mx.array, mask: mx.array, sink: mx.array) -> mx.array:
    """Softmax attention where keys are also the values.

    Args:
        q: `(L, H, d)` float32.
        keys: `(S, d)` float32, slot 0 all zero.
        mask: `(L, S)` float32, 0 where the row sees the slot, else -inf; slot 0 is 0.
        sink: `(H,)` float32: the logit that joins the denominator only.

    Returns:
        `(L, H, d)` float32.
    """
    length, n_heads, d = q.shape
    n_slots = keys.shape[0]
    sink_bias = mx.concatenate([sink[:, None], mx.zeros((n_heads, n_slots - 1))], axis=1)
    bias = (mask[:, None, :] + sink_bias[None]).reshape(length * n_heads, n_slots)
    scores = mx.addmm(bias, q.reshape(length * n_heads, d), keys.T, alpha=d**-0.5)
    weights = mx.softmax(scores, axis=-1, precise=True)
    return (weights @ keys).reshape(length, n_heads, d)


def project_groups(out: mx.array, weight: Linear, n_groups: int) -> mx.array:
    """Grouped output projection: heads in `n_groups` consecutive groups, each its own matrix.

    Args:
        out: `(L, H, d)`.
        weight: of G matrices `[H/G * d, R]`, as `Linear.grouped` wants them.
        n_groups: G.

    Returns:
        `(L, G * R)`.
    """
    length = out.shape[0]
    if isinstance(weight, Blocks):
        made = weight.grouped_rows(out.reshape(length, -1), n_groups)
        if made is not None:
            return made
    return weight.grouped(out.reshape(length, n_groups, -1)).reshape(length, -1)
