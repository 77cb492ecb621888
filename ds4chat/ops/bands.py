"""Attention of a prompt's rows in bands: each band meets the window rows that it can see.

A row sees 128 rows of its window, but a pass has thousands. What is hidden from all rows of
a band is left out, and scores never lie whole in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx

from ds4chat.ops.attention import attend
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.rope import RopeTable, rotate

BAND = 256
_SCORES = 1 << 27  # scores of a band: 512 MB of float32
_STEP = 64  # compressed rows are taken in multiples of this many


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


def bands(
    length: int, n_parts: Sequence[int], n_heads: int, reach: tuple[int, int] = (0, 0)
) -> Iterator[Band]:
    """Bands of a pass of `length` rows.

    Args:
        length: of the pass.
        n_parts: slots behind the sink: window rows before the pass, its own, compressed ones.
        n_heads: attention heads, which all have scores.
        reach: the first position, and how many positions make a compressed row; 0 leaves it
            to the mask what is visible.
    """
    n_before, n_window, n_rows = n_parts[0], sum(n_parts[:2]), sum(n_parts[2:])
    narrow = _SCORES // (n_heads * (1 + n_before + BAND + n_rows))
    step = max(8, min(BAND, narrow // 8 * 8))
    for first in range(0, length, step):
        last = min(first + step, length)
        slots = [slice(0, 1), slice(1 + first, 1 + last + n_before)]
        seen = -(-((reach[0] + last) // reach[1]) // _STEP) * _STEP if reach[1] else n_rows
        if min(seen, n_rows):
            slots.append(slice(1 + n_window, 1 + n_window + min(seen, n_rows)))
        yield Band(first=first, last=last, slots=tuple(slots))


def attend_bands(  # (L, H * d) as projected to (L, H, d), turned back
    q: mx.array, keys: mx.array, mask: mx.array, sink: mx.array,
    table: RopeTable, eps: float, cut: Iterable[Band],
) -> mx.array:  # fmt: skip
    """Projected queries of a prompt's pass to attended values, norm and rotations included.

    Args:
        q: `(L, H * d)`, neither normed nor turned.
        keys: `(S, d)` float32 as `gather_keys` makes them.
        mask: `(L, S)` float32, 0 where a row sees a slot, else -inf; slot 0 is the sink.
        sink: `(H,)`.
        table: angles of the rows.
        eps: of the norm of each head.
        cut: the pass in bands.

    Returns:
        `(L, H, d)` in the type of `q`.
    """
    made = []
    for band in cut:
        at = slice(band.first, band.last)
        turns = RopeTable(cos=table.cos[at], sin=table.sin[at])
        heads = q[at].reshape(band.last - band.first, sink.shape[0], -1)
        heads = rotate(rms_norm(heads, None, eps), turns)
        out = attend(heads, band.keys(keys), band.mask(mask), sink)
        made.append(rotate(out, turns, inverse=True).astype(q.dtype))
    return made[0] if len(made) == 1 else mx.concatenate(made, axis=0)
