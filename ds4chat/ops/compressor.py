"""Compressed rows: softmax pooling of 4 or 128 tokens' rows, a gate per channel."""

from __future__ import annotations

import mlx.core as mx


def pool(kv: mx.array, gate: mx.array) -> mx.array:
    """Pool `(N, entries, c)` values by the softmax of their gates over the entries: `(N, c)`.

    Formula: `spec/architecture.md` section 5. Float32.
    """
    weights = mx.softmax(gate, axis=1, precise=True)
    return (weights * kv).sum(axis=1)


def entries_of(
    raw: mx.array, is_overlapping: bool, is_first: bool
) -> tuple[mx.array, mx.array]:
    """Split raw rows into the entries of one compressed row.

    Args:
        raw: `(tokens, 2, width)`: values and gates (position bias included) of the tokens of
            the row, for an overlapping compressor preceded by those of the row before.
        is_overlapping: ratio 4: first halves of the older tokens, second halves of the newer.
        is_first: the first row of a sequence has no older tokens; `raw` holds only its own.

    Returns:
        values and gates `(1, entries, c)`.
    """
    if not is_overlapping:
        return raw[None, :, 0], raw[None, :, 1]
    half = raw.shape[-1] // 2
    if is_first:
        return raw[None, :, 0, half:], raw[None, :, 1, half:]
    n = raw.shape[0] // 2
    values = mx.concatenate([raw[:n, 0, :half], raw[n:, 0, half:]], axis=0)
    gates = mx.concatenate([raw[:n, 1, :half], raw[n:, 1, half:]], axis=0)
    return values[None], gates[None]
