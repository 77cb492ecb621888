"""Notices text that repeats itself for ever, as reasoning at temperature 0 sometimes does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

MIN_TOKENS = 96
MIN_REPEATS = 4
MAX_PERIOD = 512
_EVERY = 32  # tokens between two looks
_KEY = 8  # tokens that must come again before a period is tried


class LoopWatch:
    """Reads tokens and tells once that the newest ones only repeat."""

    def __init__(self) -> None:
        self._ids: deque[int] = deque(maxlen=MAX_PERIOD * MIN_REPEATS)
        self._n_since = 0
        self._is_told = False

    def push(self, ids: Iterable[int]) -> bool:
        """Read more tokens; True the first time that they loop."""
        for token_id in ids:
            self._ids.append(token_id)
            self._n_since += 1
        if self._n_since < _EVERY or self._is_told:
            return False
        self._n_since = 0
        self._is_told = period(list(self._ids)) > 0
        return self._is_told


def period(ids: Sequence[int]) -> int:
    """The shortest period in which the end of `ids` repeats itself; 0: it does not.

    It must repeat at least `MIN_REPEATS` times and over `MIN_TOKENS` tokens.
    """
    last = list(ids[-_KEY:])
    for p in range(1, min(MAX_PERIOD, len(ids) - _KEY) + 1):
        span = max(MIN_REPEATS * p, MIN_TOKENS)
        if span > len(ids):
            return 0
        if list(ids[-_KEY - p : -p]) == last and list(ids[-span:-p]) == list(ids[p - span :]):
            return p
    return 0
