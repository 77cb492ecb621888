"""ds4's scheduler: the sequences that ds4 and its ports test, and every pause."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from ds4chat.engine.scheduler import (
    CostModel,
    RoundOutcome,
    Scheduler,
    WindowKnobs,
    make_scheduler,
)
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Policy, SpecOptions, SpecState


def window(**knobs: Any) -> Scheduler:
    costs = CostModel()
    costs.set_measured(1, 0.020)
    scheduler = make_scheduler(
        SpecOptions(policy=Policy.WINDOW),
        block_size=5,
        costs=costs,
        window_knobs=WindowKnobs(**{"seed_batched": False, **knobs}),
    )
    scheduler.begin_request()
    return scheduler


def outcome(accepted: int, tested: int = 5, **more: Any) -> RoundOutcome:
    return RoundOutcome(tested=tested, accepted=accepted, draft_s=0.004, verify_s=0.030, **more)


def empty(confidence0: float | None = None) -> RoundOutcome:
    return outcome(0, tested=0, confidence0=confidence0)


def count_skips(scheduler: Scheduler) -> int:
    skips = 0
    while not scheduler.before_round(1000, 7).draft:
        scheduler.note_plain(0.020)
        skips += 1
        assert skips < 1000
    return skips


def skips_after(scheduler: Scheduler, *outcomes: RoundOutcome) -> list[int]:
    """Run attempts; gives the plain steps taken after each."""
    found = []
    for result in outcomes:
        assert scheduler.before_round(1000, 7).draft
        scheduler.note_round(result)
        found.append(count_skips(scheduler))
    return found


def test_a_window_of_one_accept_each_pauses_two_steps() -> None:
    assert skips_after(window(), *[outcome(1)] * 4) == [0, 0, 0, 2]


def test_a_low_window_pauses_32_steps_when_the_anchor_is_verified_with_the_drafts() -> None:
    assert skips_after(window(seed_batched=True), *[outcome(1)] * 4) == [0, 0, 0, 32]
    assert WindowKnobs().seed_batched


def test_four_accepts_a_round_stay_open() -> None:
    assert skips_after(window(), *[outcome(4)] * 12) == [0] * 12


@pytest.mark.parametrize(
    ("accepts", "pause"), [((1, 2, 1, 2), 0), ((1, 2, 1, 1), 2), ((0, 0, 0, 5), 2)]
)
def test_a_window_is_low_below_one_and_a_half(accepts: tuple[int, ...], pause: int) -> None:
    assert skips_after(window(), *map(outcome, accepts))[-1] == pause


def test_the_window_tumbles() -> None:
    """After a good window a single bad round does not pause: counts start afresh."""
    results = [outcome(4)] * 4 + [outcome(0)] * 3 + [outcome(0)]
    assert skips_after(window(), *results) == [0] * 7 + [2]


@pytest.mark.parametrize(("confidence0", "pause"), [(0.25, 7), (0.5, 7), (0.51, 3), (None, 3)])
def test_a_cold_empty_proposal_pauses_by_its_first_confidence(
    confidence0: float | None, pause: int
) -> None:
    assert skips_after(window(), empty(confidence0)) == [pause]


def test_an_empty_proposal_after_short_accepts_pauses_four_steps() -> None:
    assert skips_after(window(), outcome(2), empty(0.1)) == [0, 4]


def test_an_empty_proposal_after_a_long_accept_pauses_three_steps() -> None:
    assert skips_after(window(), outcome(3), empty(0.1)) == [0, 3]


def test_a_first_miss_is_not_an_empty_proposal() -> None:
    assert skips_after(window(), outcome(0)) == [0]


def test_a_proposal_that_was_only_an_end_id_is_not_empty() -> None:
    assert skips_after(window(), outcome(0, tested=0, end_drafted=True)) == [0]


def test_a_mostly_draftless_window_pauses_longer() -> None:
    knobs = {"no_draft_skip": 0, "short_accept_no_draft_skip": 0}
    results = [outcome(3), outcome(1), empty(), empty()]
    assert skips_after(window(**knobs), *results) == [0, 0, 0, 4]
    assert skips_after(window(**knobs), outcome(3), *[outcome(0)] * 2, empty())[-1] == 2
    assert skips_after(window(seed_batched=True, **knobs), *results)[-1] == 32


def test_the_time_limits_are_off_by_default_and_pause_when_set() -> None:
    """A round costs 14 ms beyond a plain step; two accepts save 40 ms."""
    good = [outcome(2)] * 4
    assert skips_after(window(), *good)[-1] == 0
    assert skips_after(window(max_ms_per_accept_milli=6_900), *good)[-1] == 4
    assert skips_after(window(max_ms_per_accept_milli=7_100), *good)[-1] == 0
    assert skips_after(window(max_extra_saved_ratio_milli=340), *good)[-1] == 4
    assert skips_after(window(max_extra_saved_ratio_milli=360), *good)[-1] == 0


def test_a_break_even_window_pauses_what_does_not_earn_its_time() -> None:
    knobs = {"break_even_window": 3, "min_avg_milli": 0}
    assert skips_after(window(**knobs), *[outcome(1)] * 3) == [0, 0, 0]
    dear = RoundOutcome(tested=5, accepted=1, draft_s=0.011, verify_s=0.030)
    assert skips_after(window(**knobs), *[dear] * 3) == [0, 0, 4]


@pytest.mark.parametrize(("budget", "drafts"), [(8, False), (9, False), (10, True)])
def test_the_tail_of_a_reply_is_plain(budget: int, drafts: bool) -> None:
    decision = window().before_round(budget, 7)
    assert decision.draft is drafts
    assert drafts or "drafting needs 10" in decision.reason


def test_a_tail_skip_does_not_use_up_a_pause() -> None:
    scheduler = window()
    scheduler.before_round(1000, 7)
    scheduler.note_round(empty())
    scheduler.before_round(9, 7)
    assert count_skips(scheduler) == 3


def test_switched_off_it_always_attempts() -> None:
    scheduler = window(enabled=False)
    assert skips_after(scheduler, *[empty(0.1)] * 8) == [0] * 8
    assert scheduler.before_round(2, 1).draft


def test_the_default_threshold_is_six_tenths() -> None:
    scheduler = window()
    scheduler.before_round(1000, 7)
    assert scheduler.verify_len([0.9, 0.6, 0.59, 0.9]) == (
        2,
        "2 drafts: the next one's confidence is below 0.6",
    )
    assert scheduler.verify_len([0.9] * 5)[0] == 5


def test_a_new_reply_clears_the_pause_and_the_counts() -> None:
    scheduler = window()
    for _ in range(3):
        scheduler.note_round(outcome(1))
    scheduler.note_round(empty())
    scheduler.begin_request()
    assert skips_after(scheduler, empty(0.25)) == [7]


def test_the_user_keeps_it_on_for_a_reply() -> None:
    scheduler = window()
    scheduler.note_round(empty())
    scheduler.override(True)
    assert skips_after(scheduler, *[outcome(0)] * 8) == [0] * 8
    assert scheduler.before_round(5, 4).draft
    scheduler.begin_request()
    assert skips_after(scheduler, empty(0.25)) == [7]


def test_pauses_and_their_ends_are_events_with_numbers() -> None:
    scheduler = window()
    skips_after(scheduler, *[outcome(1)] * 4)
    events = scheduler.drain_events()
    assert [event.state for event in events] == [SpecState.PARKED, SpecState.ON]
    assert events[0].reason == (
        "parked: 1.00 accepted a round over 4 rounds, below 1.5; next try after 2 steps"
    )


def test_ds4s_variables_set_the_knobs() -> None:
    knobs = WindowKnobs.from_mapping(
        {
            "DS4_DSPARK_SCHEDULER": "0",
            "DS4_DSPARK_SCHEDULER_WINDOW": "8",
            "DS4_DSPARK_SCHEDULER_SKIP": 5,
            "DS4_DSPARK_SCHEDULER_MIN_AVG_MILLI": "2000",
            "DS4_DSPARK_SEED_BATCH": "0",
            "HOME": "/root",
        }
    )
    assert knobs == WindowKnobs(
        enabled=False, window=8, skip=5, min_avg_milli=2000, seed_batched=False
    )
    assert knobs.low_skip == 5


def test_each_knob_names_its_variable() -> None:
    quoted = (WindowKnobs.__doc__ or "").split("`")[1::2]
    variables = {name for name in quoted if name.startswith("DS4_")} - {"DS4_DSPARK_SCHEDULER"}
    assert len(variables) == len(fields(WindowKnobs)) - 1
    for variable in variables:  # 6 or, for the switch, 0: neither is anyone's default
        value = "0" if variable == "DS4_DSPARK_SEED_BATCH" else "6"
        assert WindowKnobs.from_mapping({variable: value}) != WindowKnobs()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("DS4_DSPARK_SCHEDULER_WINDOW", "0", "must be 1 or more"),
        ("DS4_DSPARK_SCHEDULER_SKIP", "-1", "must be 0 or more"),
        ("DS4_DSPARK_SCHEDULER_SLOW_SKIP", "many", "'many'; it must be 0 or more"),
        ("DS4_DSPARK_SCHEDULER", "2", "must be 0 or 1"),
        ("DS4_DSPARK_SCHEDULER_WINDWO", "4", "not a variable"),
    ],
)
def test_bad_variables_are_named(variable: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        WindowKnobs.from_mapping({variable: value})
    assert variable in caught.value.message


def test_an_unknown_variable_names_the_nearest() -> None:
    with pytest.raises(SettingsError) as caught:
        WindowKnobs.from_mapping({"DS4_DSPARK_SCHEDULER_WINDWO": "4"})
    assert caught.value.hint == "did you mean DS4_DSPARK_SCHEDULER_WINDOW?"
