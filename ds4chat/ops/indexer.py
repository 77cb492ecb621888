"""Which compressed rows a query attends: the top-k of the indexer's scores."""

from __future__ import annotations

import mlx.core as mx

from ds4chat.ops.dispatch import current

_DOTS = 1 << 27  # products at once on a GPU: 512 MB of float32


def score_rows(q: mx.array, head_weight: mx.array, rows: mx.array) -> mx.array:
    """`score_j = sum_h w_h * max(0, q_h . row_j)`.

    Args:
        q: `(L, Hi, di)` float32, rotated and rounded.
        head_weight: `(L, Hi)` float32, scaled.
        rows: `(C, di)` float32.

    Returns:
        `(L, C)` float32.
    """
    length, n_heads, d = q.shape
    step = max(1, _DOTS // (n_heads * rows.shape[0]))
    if length > step and not current().is_reference:
        return mx.concatenate(
            [
                score_rows(q[at : at + step], head_weight[at : at + step], rows)
                for at in range(0, length, step)
            ]
        )
    dots = q.reshape(length * n_heads, d) @ rows.T
    dots = mx.maximum(dots, 0.0).reshape(length, n_heads, -1)
    return (head_weight[:, None, :] @ dots).squeeze(1)


def choose_rows(scores: mx.array, mask: mx.array, k: int) -> mx.array:
    """Keep the k best visible rows of each query; ties go to the lowest index.

    Args:
        scores: `(L, C)`; what stands in invisible places does not matter.
        mask: `(L, C)` float32, 0 where visible, else -inf.
        k: how many to keep; C >= k.

    Returns:
        `(L, C)` mask, 0 for the chosen, else -inf; NaN for a query with a visible score that is
        no finite number: its choice would be arbitrary, and nothing else would tell of it.
    """
    is_visible = mask == 0.0
    scores = mx.where(is_visible, scores, -mx.inf)
    ordered = mx.sort(scores, axis=-1)  # NaN comes last
    kth = ordered[:, -k][:, None]
    hidden = mx.where(ordered[:, -1:] < mx.inf, -mx.inf, mx.nan)
    is_above = scores > kth
    is_tied = (scores == kth) & is_visible
    room = k - is_above.astype(mx.int32).sum(axis=-1, keepdims=True)
    is_kept = is_tied & (mx.cumsum(is_tied.astype(mx.int32), axis=-1) <= room)
    return mx.where(is_above | is_kept, mx.zeros_like(scores), hidden)
