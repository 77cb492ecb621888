"""The cost model: medians, interpolation, warm-up, age."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from ds4chat.engine.costs import CostModel


def measured(times: dict[int, float]) -> CostModel:
    costs = CostModel()
    for rows, seconds in times.items():
        costs.set_measured(rows, seconds)
    return costs


def test_nothing_timed_is_nothing_known() -> None:
    costs = CostModel()
    assert costs.plain_step_s is None
    assert costs.pass_s(3) is None
    assert costs.draft_s == 0


def test_row_counts_between_measured_ones_lie_on_the_line() -> None:
    costs = measured({1: 10.0, 3: 12.0, 6: 18.0})
    assert [costs.pass_s(rows) for rows in range(1, 9)] == pytest.approx(
        [10, 11, 12, 14, 16, 18, 20, 22]
    )


def test_measured_times_are_given_as_they_are() -> None:
    """On some back ends eight rows are cheaper than six: a fact, not noise."""
    costs = measured({1: 35.0, 6: 182.0, 8: 44.0})
    assert costs.pass_s(6) == 182
    assert costs.pass_s(7) == pytest.approx(113)
    assert costs.pass_s(8) == 44
    assert measured({5: 4.0, 6: 3.0}).pass_s(8) == 3


def test_outside_the_measured_rows_times_are_flat_below_and_alone() -> None:
    assert measured({4: 7.0}).pass_s(1) == 7
    assert measured({4: 7.0}).pass_s(8) == 7


def test_a_median_shrugs_off_a_stall() -> None:
    costs = measured({1: 0.02})
    costs.note(1, 3.0)
    assert costs.plain_step_s == 0.02
    for seconds in (0.021, 0.022, 9.0, 0.021):
        costs.note(1, seconds)
    assert costs.plain_step_s == 0.021


def test_the_median_follows_recent_times() -> None:
    costs = measured({1: 0.02})
    for _ in range(8):
        costs.note(1, 0.05)
    assert costs.plain_step_s == 0.05


def test_the_first_uncalibrated_pass_is_not_counted() -> None:
    costs = CostModel()
    costs.note(1, 100.0)
    assert costs.plain_step_s is None
    costs.note(1, 0.02)
    assert costs.plain_step_s == 0.02


def test_three_plain_steps_are_wanted_without_a_calibration() -> None:
    costs, wanted = CostModel(), []
    for _ in range(5):
        wanted.append(costs.n_plain_wanted)
        costs.note(1, 0.02)
    assert wanted == [3, 3, 2, 1, 0]
    assert measured({1: 0.02}).n_plain_wanted == 0


def test_old_times_are_forgotten_but_for_the_plain_step() -> None:
    costs = measured({1: 0.02, 2: 0.03, 6: 9.0})
    for _ in range(257):
        costs.note(2, 0.03)
    assert costs.pass_s(6) == pytest.approx(0.07)  # on the line through 1 and 2 rows
    assert costs.plain_step_s == 0.02
    assert costs.n_plain_wanted == 1
    costs.note(1, 0.05)
    assert costs.plain_step_s == 0.05  # the old one no longer counts


def test_the_fewer_plain_steps_were_timed_the_sooner_one_is_wanted() -> None:
    costs, places = measured({1: 0.02}), []
    for place in range(600):
        if costs.n_plain_wanted:
            places.append(place)
            costs.note(1, 0.02)
        else:
            costs.note(6, 0.03)
    gaps = [b - a for a, b in pairwise([0, *places])]
    assert gaps[:3] == [16, 32 + 1, 64 + 1]
    assert max(gaps) <= 128 + 1
    assert len(places) <= 10


def test_a_lone_plain_step_that_met_a_stall_is_outvoted_by_the_next_one() -> None:
    costs = measured({1: 0.5})
    costs.note(1, 0.02)
    assert costs.plain_step_s == 0.02


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_impossible_times_are_ignored(seconds: float) -> None:
    costs = measured({1: 0.02})
    costs.set_draft(0.004)
    costs.set_measured(1, seconds)
    costs.note(1, seconds)
    costs.set_draft(seconds)
    costs.note_draft(seconds)
    assert (costs.plain_step_s, costs.draft_s) == (0.02, 0.004)


def test_a_pass_over_no_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 rows"):
        CostModel().set_measured(0, 1.0)
