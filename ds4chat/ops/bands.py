"""Attention of a prompt's rows in bands: each band meets the window rows that it can see.

A row sees 128 rows of its window, but a pass has thousands. What is hidden from all rows of
a band is left out, and scores never lie whole in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx

from ds4chat.ops.attention import attend, gather_keys
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.rope import RopeTable, rotate

BAND = 256
_SCORES = 1 << 27  # scores of a band: 512 MB of float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Rows `first` .. `last` - 1 of a pass and the slots that stand for them, as slices."""

    first: int
    last: int
    slots: tuple[slice, ...]

    def keys(self, keys: mx.array) -> mx.array:
        """The band's rows of `(S, d)`."""
        return mx.concatenate([keys[part] for part in self.slots], axis=0)

    def mask(self, mask: mx.array) -> mx.array:
        """The band's part of `(L, S)`."""
        rows = mask[self.first : self.last]
        return mx.concatenate([rows[:, part] for part in self.slots], axis=1)


def bands(length: int, n_before: int, n_compressed: int, n_heads: int) -> Iterator[Band]:
    """Bands of a pass of `length` rows with `n_before` window rows before it.

    Slots are the sink, the window rows before and of the pass, the compressed rows.
    """
    n_window = n_before + length
    narrow = _SCORES // (n_heads * (1 + n_before + BAND + n_compressed))
    step = max(8, min(BAND, narrow // 8 * 8))
    for first in range(0, length, step):
        last = min(first + step, length)
        slots = [slice(0, 1), slice(1 + first, 1 + last + n_before)]
        if n_compressed:
            slots.append(slice(1 + n_window, 1 + n_window + n_compressed))
        yield Band(first=first, last=last, slots=tuple(slots))


def attend_bands(  # (L, H * d) as projected to (L, H, d), turned back
    q: mx.array, parts: list[mx.array], mask: mx.array, is_live: mx.array, sink: mx.array,
    table: RopeTable, eps: float,
) -> mx.array:  # fmt: skip
    """Projected queries of a prefill pass to attended values, norm and rotations included.

    Args:
        q: `(L, H * d)`, neither normed nor turned.
        parts: window rows before the pass, its own, perhaps compressed rows; `(n_i, d)`.
        mask: `(L, S)` float32, 0 where a row sees a slot, else -inf; slot 0 is the sink.
        is_live: `(S,)` bool, which slots any row sees.
        sink: `(H,)`.
        table: angles of the rows.
        eps: of the norm of each head.

    Returns:
        `(L, H, d)` in the type of `q`.
    """
    length, n_heads = q.shape[0], sink.shape[0]
    keys = gather_keys(parts, is_live)
    n_compressed = parts[2].shape[0] if len(parts) > 2 else 0
    made = []
    for band in bands(length, parts[0].shape[0], n_compressed, n_heads):
        at = slice(band.first, band.last)
        turns = RopeTable(cos=table.cos[at], sin=table.sin[at])
        heads = q[at].reshape(band.last - band.first, n_heads, -1)
        heads = rotate(rms_norm(heads, None, eps), turns)
        out = attend(heads, band.keys(keys), band.mask(mask), sink)
        made.append(rotate(out, turns, inverse=True).astype(q.dtype))
    return made[0] if len(made) == 1 else mx.concatenate(made, axis=0)
