"""What a draft depends on beside the rings, in one buffer that is kept."""

from __future__ import annotations

import numpy as np

from ds4chat.draft.config import DraftConfig
from ds4chat.model.kv import ring_size
from ds4chat.model.plan import ring_positions
from ds4chat.ops.packed import KeptBuffer
from ds4chat.ops.rope import Rope


class DraftLayout(KeptBuffer):
    """Ids `(B,)`, cosines and sines `(B, dim / 2)`, mask `(B, S)` and live slots `(S,)`.

    Slots are sink, ring and block rows; the context is positions n - window .. n - 1.
    """

    def __init__(self, config: DraftConfig, rope: Rope) -> None:
        super().__init__()
        size, half = config.block_size, config.block.rope_dim // 2
        self._rope, self._size = rope, size
        self._window, self._ring = config.block.window, ring_size(config.block.window)
        n_slots = 1 + self._ring + size
        self.add((size,), "i")
        self.add((size, half), "f")
        self.add((size, half), "f")
        self.add((size, n_slots), "f")
        self.add((n_slots,), "?")
        self.close()
        self.views[0][:] = config.noise_id
        self.views[-1][:] = 1

    def fill(self, anchor: int, n: int) -> None:
        """Hold what a draft behind `anchor` needs, the token at position n."""
        ids, cosines, sines, mask, is_live = self.views
        ids[0] = anchor
        table = self._rope.rows(n, self._size)
        cosines[:], sines[:] = table.cos, table.sin
        newest = ring_positions(n, self._ring)
        is_live[1 : 1 + self._ring] = (newest >= 0) & (newest >= n - self._window)
        mask[:] = np.where(is_live, np.float32(0), np.float32(-np.inf))
