"""What the target chose from a row of logits, remembered.

A choice is asked for by who reads along, again when the token comes back to be committed, and
when a draft was judged; over a large vocabulary with top-p it takes milliseconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.verify import accept_greedy
from ds4chat.engine.sampling import choose_own
from ds4chat.errors import NonFiniteError
from ds4chat.protocol.types import Sampling


class Choices:
    """The choices from one row at a time.

    Rows are told apart as objects and must not change.
    """

    def __init__(self) -> None:
        self._row: NDArray[np.float32] | None = None
        self._made: dict[tuple[Sampling, int], int] = {}

    def of(self, row: NDArray[np.float32], sampling: Sampling, position: int) -> int:
        """`sampling.choose_own`; raises what that raises."""
        self._look_at(row)
        made = self._made.get((sampling, position))
        if made is None:
            made = self._made[sampling, position] = choose_own(row, sampling, position)
        return made

    def note(
        self, row: NDArray[np.float32], sampling: Sampling, position: int, token: int
    ) -> None:
        """Remember what was chosen elsewhere."""
        self._look_at(row)
        self._made[sampling, position] = token

    def _look_at(self, row: NDArray[np.float32]) -> None:
        if row is not self._row:
            self._row, self._made = row, {}


def judge(
    rows: NDArray[np.float32], kept: tuple[int, ...], sampling: Sampling, position: int
) -> tuple[int, int]:
    """How many drafts the target also chose, and its choice after them (-1: not finite).

    Args:
        rows: `(len(kept) + 1, V)` logits.
        kept: the drafts that were verified.
        sampling: how the target chooses.
        position: of the first draft.
    """
    choices: list[int] = []
    for i, row in enumerate(rows):
        try:
            choices.append(choose_own(row, sampling, position + i))
        except NonFiniteError:  # raised again by choose(), where plain decoding meets it
            return i, -1
        if i == len(kept) or choices[i] != kept[i]:
            break
    verdict = accept_greedy(kept[: len(choices) - 1], choices)
    return verdict.n_accepted, verdict.next_token
