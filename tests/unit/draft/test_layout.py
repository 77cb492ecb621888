"""What a draft is told of its place, said slot by slot."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.cli.bench_open import FLASH
from ds4chat.draft.config import DraftConfig
from ds4chat.draft.layout import DraftLayout
from ds4chat.model.kv import ring_size
from ds4chat.ops.rope import Rope, RopeSpec

WINDOW, SIZE, NOISE, DIM = 16, 5, 77, 12
CONFIG = DraftConfig(
    name="small",
    block=replace(FLASH.block, window=WINDOW, rope_dim=DIM),
    n_stages=1,
    block_size=SIZE,
    markov_rank=8,
    noise_id=NOISE,
    target_layers=(0,),
)


def test_one_buffer_serves_all_places() -> None:
    rope = Rope(RopeSpec(dim=DIM, base=10_000.0))
    layout, ring = DraftLayout(CONFIG, rope), ring_size(WINDOW)
    for n in (0, 1, 15, 16, 17, 254, 3, 1000):
        layout.fill(anchor=n + 2, n=n)
        ids, cosines, sines, mask, is_live = (np.array(a) for a in layout.arrays())
        np.testing.assert_array_equal(ids, [n + 2, *[NOISE] * (SIZE - 1)])
        table = rope.host_table(n + np.arange(SIZE))
        np.testing.assert_array_equal(cosines, table.cos)
        np.testing.assert_array_equal(sines, table.sin)
        context = {p % ring for p in range(max(0, n - WINDOW), n)}
        seen = [True, *(slot in context for slot in range(ring)), *[True] * SIZE]
        np.testing.assert_array_equal(is_live, seen)
        np.testing.assert_array_equal(mask, np.tile(np.where(seen, 0, -np.inf), (SIZE, 1)))


@pytest.mark.parametrize("is_moved", [False, True])
def test_its_parts_are_those_of_the_buffer(is_moved: bool) -> None:
    layout = DraftLayout(CONFIG, Rope(RopeSpec(dim=DIM, base=10_000.0)))
    layout.fill(anchor=4, n=40)
    *parts, _ = layout.split(is_moved=is_moved)([mx.array(layout.words)])
    for found, wanted in zip(parts, layout.arrays(), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(np.array(found), np.array(wanted))
