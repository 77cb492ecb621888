"""The shared rules of the policies, and the `fixed` one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ds4chat.engine.scheduler import (
    CostModel,
    FixedScheduler,
    MoneyScheduler,
    RoundOutcome,
    Scheduler,
    WindowScheduler,
    block_notice,
    make_scheduler,
)
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Policy, SpecOptions, SpecState


def fixed(block_size: int = 5, **options: Any) -> Scheduler:
    spec = SpecOptions(policy=Policy.FIXED, **options)
    return make_scheduler(spec, block_size=block_size, costs=None)


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (Policy.FIXED, FixedScheduler),
        (Policy.WINDOW, WindowScheduler),
        (Policy.MONEY, MoneyScheduler),
    ],
)
def test_each_policy_has_its_scheduler(policy: Policy, kind: type[Scheduler]) -> None:
    scheduler = make_scheduler(SpecOptions(policy=policy), block_size=5, costs=None)
    assert type(scheduler) is kind


@pytest.mark.parametrize(
    ("block_size", "draft_max", "room", "k"),
    [
        (5, None, 7, 5),
        (5, 3, 7, 3),
        (5, None, 2, 2),
        (9, None, 7, 7),
        (9, 9, 7, 7),
        (5, 9, 7, 5),
    ],
)
def test_fixed_verifies_the_least_of_cap_block_and_room(
    block_size: int, draft_max: int | None, room: int, k: int
) -> None:
    scheduler = fixed(block_size, draft_max=draft_max)
    assert scheduler.before_round(1000, room).draft
    assert scheduler.verify_len([0.01] * block_size)[0] == k


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(("draft_max", "room"), [(0, 7), (None, 0)])
def test_without_room_or_cap_the_step_is_plain(
    policy: Policy, draft_max: int | None, room: int
) -> None:
    spec = SpecOptions(policy=policy, draft_max=draft_max)
    decision = make_scheduler(spec, block_size=5, costs=None).before_round(1000, room)
    assert not decision.draft
    assert decision.reason.startswith("plain: no")


@pytest.mark.parametrize("policy", list(Policy))
def test_the_users_threshold_always_cuts_before_the_first_lower_confidence(
    policy: Policy,
) -> None:
    costs = CostModel()
    for rows in range(1, 9):
        costs.set_measured(rows, 0.01)
    spec = SpecOptions(policy=policy, confidence_threshold=0.8)
    scheduler = make_scheduler(spec, block_size=5, costs=costs)
    scheduler.before_round(1000, 7)
    assert scheduler.verify_len([0.95, 0.8, 0.79, 0.99, 0.99])[0] == 2
    assert scheduler.verify_len([0.1, 0.9])[0] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draft_max": -1}, "draft-max is -1"),
        ({"confidence_threshold": 1.5}, "threshold is 1.5"),
        ({"confidence_threshold": math.nan}, "threshold is nan"),
    ],
)
def test_unusable_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        fixed(**options)


@pytest.mark.parametrize("policy", list(Policy))
def test_the_user_switches_off_for_one_reply(policy: Policy) -> None:
    costs = CostModel()
    costs.set_measured(1, 0.01)
    scheduler = make_scheduler(SpecOptions(policy=policy), block_size=5, costs=costs)
    scheduler.begin_request()
    assert scheduler.before_round(1000, 7).draft
    scheduler.override(False)
    assert not scheduler.before_round(1000, 7).draft
    scheduler.begin_request()
    assert scheduler.before_round(1000, 7).draft
    states = [event.state for event in scheduler.drain_events()]
    assert states == [SpecState.OFF, SpecState.ON]
    assert scheduler.drain_events() == []


def test_every_policy_keeps_the_costs_up() -> None:
    for policy in Policy:
        costs = CostModel()
        for rows in (1, 4):
            costs.set_measured(rows, 1.0)
        costs.set_draft(1.0)
        scheduler = make_scheduler(SpecOptions(policy=policy), block_size=5, costs=costs)
        for _ in range(3):
            scheduler.note_plain(0.02)
            scheduler.note_round(
                RoundOutcome(tested=3, accepted=1, draft_s=0.004, verify_s=0.03)
            )
        assert (costs.plain_step_s, costs.pass_s(4), costs.draft_s) == (0.02, 0.03, 0.004)


def test_a_block_beyond_seven_is_said() -> None:
    assert block_notice(7) == ""
    assert "blocks of 9; at most 7" in block_notice(9)
