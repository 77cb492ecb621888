"""Made-up merges of a byte-level vocabulary, in any number and fast.

For files of Flash's size that need its 127,741 merges but not its words.
"""

from __future__ import annotations

import random

from ds4chat.text.bytemap import BYTE_SYMBOLS

N_MERGES = 127_741
"""Merges of the published vocabulary."""

_MAX_SYMBOLS = 12  # of a merged token: real ones are about that short


def random_merges(n_merges: int, seed: int = 4) -> list[tuple[str, str]]:
    """`n_merges` pairs of a byte or an earlier merge, every product of them different."""
    rng = random.Random(seed)
    made = list(BYTE_SYMBOLS)
    known = set(made)
    merges: list[tuple[str, str]] = []
    while len(merges) < n_merges:
        left = made[int(rng.random() * len(made))]
        right = made[int(rng.random() * (256 + len(merges) // 8))]
        if len(left) + len(right) <= _MAX_SYMBOLS and left + right not in known:
            known.add(left + right)
            made.append(left + right)
            merges.append((left, right))
    return merges
