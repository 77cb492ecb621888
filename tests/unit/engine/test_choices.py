"""Choices are made once for a row, and are those of `sampling`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine import choices
from ds4chat.engine.choices import Choices, judge
from ds4chat.engine.sampling import choose_own
from ds4chat.errors import NonFiniteError
from ds4chat.protocol.types import Sampling

WARM = Sampling(temperature=1.0, top_p=0.9, seed=3)


def rows(n: int) -> NDArray[np.float32]:
    return np.random.default_rng(5).normal(size=(n, 200)).astype(np.float32) * 3


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions that were really chosen for."""
    seen: list[int] = []

    def watched(row: NDArray[np.float32], sampling: Sampling, position: int) -> int:
        seen.append(position)
        return choose_own(row, sampling, position)

    monkeypatch.setattr(choices, "choose_own", watched)
    return seen


def test_a_choice_is_made_once_for_row_settings_and_position(asked: list[int]) -> None:
    made, (one, two) = Choices(), rows(2)
    for position in (7, 7, 8, 7):
        assert made.of(one, WARM, position) == choose_own(one, WARM, position)
    assert asked == [7, 8]
    assert made.of(one, Sampling(), 7) == int(np.argmax(one))
    assert made.of(two, WARM, 7) == choose_own(two, WARM, 7)
    assert made.of(one, WARM, 7) == choose_own(one, WARM, 7)
    assert asked == [7, 8, 7, 7, 7]


def test_what_was_chosen_elsewhere_is_not_chosen_again(asked: list[int]) -> None:
    made, (one, two) = Choices(), rows(2)
    made.of(one, WARM, 4)
    made.note(two, WARM, 5, 123)
    assert made.of(two, WARM, 5) == 123
    assert made.of(two, WARM, 6) == choose_own(two, WARM, 6)
    assert asked == [4, 6]


def test_an_error_is_raised_every_time() -> None:
    made, row = Choices(), rows(1)[0]
    row[3] = np.nan
    for _ in range(2):
        with pytest.raises(NonFiniteError):
            made.of(row, WARM, 0)


def test_drafts_are_judged_up_to_the_first_that_differs() -> None:
    given = rows(4)
    wanted = tuple(choose_own(row, WARM, 10 + i) for i, row in enumerate(given))
    assert judge(given, wanted[:3], WARM, 10) == (3, wanted[3])
    assert judge(given, (wanted[0], wanted[1] + 1, wanted[2]), WARM, 10) == (1, wanted[1])
    assert judge(given[:1], (), WARM, 10) == (0, wanted[0])
    given[2, 0] = np.inf
    assert judge(given, wanted[:3], WARM, 10) == (2, -1)
