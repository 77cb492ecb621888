"""Places that a timeline can go back to without evaluating its prompt again.

Compressed rows are never overwritten below n, so going back needs only the rings as they were.
A mark is set before the last token of each prompt, the opener of the reply: there a retry, an
edited conversation, and the next prompt without this reply's reasoning still agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.engine.runner import Runner, Timeline

KEPT = 3
"""Marks of one timeline: the last prompts'. Each holds about 25 MB on Flash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """The rings at `n` tokens: of every layer, and of the drafter's stages.

    `row` holds the logits there, if that token was read just before.
    """

    n: int
    row: NDArray[np.float32] | None
    layers: tuple[tuple[mx.array, mx.array | None, mx.array | None], ...]
    stages: tuple[mx.array, ...]


class Marks:
    """The marks of one timeline, oldest first."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []

    @property
    def newest(self) -> _Mark | None:
        """The mark of the last prompt."""
        return self._marks[-1] if self._marks else None

    def clear(self) -> None:
        """The timeline is another one now."""
        self._marks.clear()

    def rewind(self, timeline: Timeline, held: Sequence[int], wanted: Sequence[int]) -> int:
        """Go back to the last mark before `held` and `wanted` part, and before their ends.

        Returns:
            The number of tokens that the timeline then holds; 0 without such a mark, the
            timeline is then as it was and must be replaced.
        """
        pairs = enumerate(zip(held, wanted, strict=False))
        n_same = next((i for i, (a, b) in pairs if a != b), min(len(held), len(wanted)))
        n = min(n_same, len(wanted) - 1)
        self._marks = [mark for mark in self._marks if mark.n <= n]
        if not self._marks:
            return 0
        _put_back(timeline, self._marks[-1])
        return self._marks[-1].n

    def prefill(
        self, runner: Runner, timeline: Timeline, ids: Sequence[int]
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Like `Runner.prefill`, with a mark before the last token."""
        last: NDArray[np.float32] | None = None
        for done, row in runner.prefill(timeline, ids[:-1]):
            last = row
            yield done, row
        if timeline.log.n:
            kept = [mark for mark in self._marks if mark.n < timeline.log.n]
            self._marks = [*kept[1 - KEPT :], _take(timeline, last)]
        for _, row in runner.prefill(timeline, ids[-1:]):
            yield len(ids), row


@contextmanager
def gone_back(timeline: Timeline, mark: _Mark) -> Iterator[None]:
    """Be at a mark for a while; whatever is saved there, the timeline then builds on."""
    now = _take(timeline, None)
    _put_back(timeline, mark)
    lineage = timeline.lineage
    try:
        yield
    finally:
        _put_back(timeline, now)
        timeline.lineage = lineage  # its rows are the first of this timeline too


def _take(timeline: Timeline, row: NDArray[np.float32] | None) -> _Mark:
    mark = _Mark(
        n=timeline.log.n,
        row=row,
        layers=tuple(
            (mx.array(layer.window), _copy(layer.raw), _copy(layer.index_raw))
            for layer in timeline.log.layers
        ),
        stages=tuple(map(mx.array, timeline.rings.rings)) if timeline.rings else (),
    )
    mx.eval([list(layer) for layer in mark.layers], list(mark.stages))  # sync: real copies
    return mark


def _put_back(timeline: Timeline, mark: _Mark) -> None:
    timeline.log.n = mark.n
    for layer, (window, raw, index_raw) in zip(timeline.log.layers, mark.layers, strict=True):
        layer.window = mx.array(window)
        layer.raw, layer.index_raw = _copy(raw), _copy(index_raw)
    if timeline.rings is not None:
        timeline.rings.rings = list(map(mx.array, mark.stages))
    timeline.lineage = timeline.lineage.back_to(mark.n)


def _copy(array: mx.array | None) -> mx.array | None:
    return None if array is None else mx.array(array)
