"""The measuring policy, in small worlds where times and acceptance are scripted."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from ds4chat.engine.scheduler import CostModel, RoundOutcome, Scheduler, make_scheduler
from ds4chat.protocol.types import SpecOptions, SpecState


@dataclass(kw_only=True)
class World:
    """A machine and a text: times in seconds, and how many drafts would be accepted."""

    plain_s: float = 0.020
    row_s: float = 0.002  # each further row of a pass
    draft_s: float = 0.004
    accepts: int = 5
    confidence: float = 0.95
    log: list[int] = field(default_factory=list)  # per step: drafts verified, -1: not drafted
    tokens: int = 0
    seconds: float = 0.0

    def pass_s(self, rows: int) -> float:
        return self.plain_s + self.row_s * (rows - 1)

    def costs(self) -> CostModel:
        costs = CostModel()
        for rows in range(1, 9):
            costs.set_measured(rows, self.pass_s(rows))
        costs.set_draft(self.draft_s)
        return costs

    def scheduler(self, *, block_size: int = 5, **options: int) -> Scheduler:
        spec = SpecOptions(draft_max=options.get("draft_max"))
        return make_scheduler(spec, block_size=block_size, costs=self.costs())

    def run(self, scheduler: Scheduler, steps: int, budget: int = 1000, room: int = 7) -> None:
        for _ in range(steps):
            if not scheduler.before_round(budget, room).draft:
                scheduler.note_plain(self.plain_s)
                self.log.append(-1)
                self.tokens, self.seconds = self.tokens + 1, self.seconds + self.plain_s
                continue
            confidences = (self.confidence,) * scheduler.block_size
            k, _ = scheduler.verify_len(confidences)
            accepted, verify_s = min(self.accepts, k), self.pass_s(k + 1)
            scheduler.note_round(
                RoundOutcome(
                    tested=k,
                    accepted=accepted,
                    draft_s=self.draft_s,
                    verify_s=verify_s,
                    confidences=confidences[:k],
                    confidence0=self.confidence,
                )
            )
            self.log.append(k)
            self.tokens += accepted + 1
            self.seconds += self.draft_s + verify_s


def plain_runs(log: list[int]) -> list[int]:
    """Lengths of the runs of undrafted steps between drafted ones."""
    places = [-1, *[i for i, k in enumerate(log) if k >= 0]]
    return [b - a - 1 for a, b in pairwise(places) if b - a > 1]


def test_what_wins_is_drafted_whole_and_never_parked() -> None:
    world = World()
    scheduler = world.scheduler()
    world.run(scheduler, 200)
    assert {k for k in world.log if k >= 0} == {5}
    assert world.log.count(-1) <= 4  # to measure plain again
    assert scheduler.drain_events() == []


def test_what_loses_parks_and_probes_ever_more_rarely() -> None:
    world = World(accepts=0)
    scheduler = world.scheduler()
    world.run(scheduler, 1200)
    assert world.log[:4] == [5] * 4
    assert plain_runs(world.log) == [32, 64, 128, 256, 256, 256]


def test_parking_says_why_with_numbers() -> None:
    world = World(accepts=0)
    scheduler = world.scheduler()
    world.run(scheduler, 5)
    events = scheduler.drain_events()
    assert [event.state for event in events] == [SpecState.PARKED]
    assert events[0].reason == (
        "parked: 1.0 tokens a round, break-even is 1.7; next try after 32 steps"
    )
    decision = scheduler.before_round(1000, 7)
    assert decision.reason == (
        "parked: 1.0 tokens a round, break-even is 1.7; next try after 31 steps"
    )


def test_a_lost_probe_is_an_event_with_the_new_wait() -> None:
    world = World(accepts=0)
    scheduler = world.scheduler()
    world.run(scheduler, 4 + 32 + 1)
    assert [event.reason for event in scheduler.drain_events()] == [
        "parked: 1.0 tokens a round, break-even is 1.7; next try after 32 steps",
        "still parked: 1.0 tokens a round, break-even is 1.7; next try after 64 steps",
    ]


def test_a_winning_probe_ends_the_parking() -> None:
    world = World(accepts=0)
    scheduler = world.scheduler()
    world.run(scheduler, 20)
    world.accepts = 5
    world.run(scheduler, 40)
    assert world.log[-20:] == [5] * 20
    assert [event.state for event in scheduler.drain_events()] == [
        SpecState.PARKED,
        SpecState.ON,
    ]


def test_after_a_win_the_waits_start_small_again() -> None:
    world = World(accepts=0)
    scheduler = world.scheduler()
    world.run(scheduler, 4 + 32 + 1 + 64 + 1)  # two probes lost: the next wait is 128
    world.accepts = 5
    world.run(scheduler, 129)
    world.accepts, world.log = 0, []
    world.run(scheduler, 60)
    assert plain_runs(world.log)[0] == 32


def test_low_confidence_costs_only_the_draft() -> None:
    """No draft pays its row: the step after the draft is a plain one, then it parks."""
    world = World(accepts=0, confidence=0.02)
    scheduler = world.scheduler()
    world.run(scheduler, 10)
    assert world.log == [0, 0, 0, 0, -1, -1, -1, -1, -1, -1]


@pytest.mark.parametrize(
    ("confidences", "row_s", "k"),
    [
        ([0.9, 0.9, 0.9, 0.9, 0.9], 0.002, 5),
        ([0.9, 0.9, 0.9, 0.9, 0.9], 0.014, 3),  # S = .9 .81 .73 .66: a row costs 0.7 tokens
        ([0.9, 0.05, 0.9, 0.9, 0.9], 0.002, 1),
        ([0.05, 0.9, 0.9, 0.9, 0.9], 0.002, 0),
        ([0.9, 0.9, 0.9, 0.9, 0.9], 0.019, 0),
    ],
)
def test_verify_length_weighs_survival_against_row_costs(
    confidences: list[float], row_s: float, k: int
) -> None:
    scheduler = World(row_s=row_s).scheduler()
    scheduler.before_round(1000, 7)
    assert scheduler.verify_len(confidences)[0] == k


def test_verify_length_is_the_argmax_of_the_rule() -> None:
    """Checked by hand-written sums over a cost curve with a kink."""
    costs = CostModel()
    times = [0.020, 0.024, 0.036, 0.037, 0.060, 0.061]
    for rows, seconds in enumerate(times, start=1):
        costs.set_measured(rows, seconds)
    scheduler = make_scheduler(SpecOptions(), block_size=5, costs=costs)
    scheduler.before_round(1000, 7)
    rate = 1 / 0.020
    values = [
        1 - rate * 0.020,
        1 + 0.8 - rate * 0.024,
        1 + 0.8 + 0.64 - rate * 0.036,
        1 + 0.8 + 0.64 + 0.576 - rate * 0.037,
        1 + 0.8 + 0.64 + 0.576 + 0.5184 - rate * 0.060,
        1 + 0.8 + 0.64 + 0.576 + 0.5184 + 0.46656 - rate * 0.061,
    ]
    assert scheduler.verify_len([0.8, 0.8, 0.9, 0.9, 0.9])[0] == values.index(max(values)) == 3


def test_a_high_running_rate_makes_rows_dearer() -> None:
    """Where a round makes 6 tokens, a doubtful last row is worth less than starting anew."""
    world = World(row_s=0.004)
    fresh, running = world.scheduler(), world.scheduler()
    world.run(running, 20)
    for scheduler in (fresh, running):
        scheduler.before_round(1000, 7)
    doubtful = [0.9, 0.9, 0.9, 0.9, 0.5]
    assert fresh.verify_len(doubtful)[0] == 5
    assert running.verify_len(doubtful)[0] == 4


def test_at_most_seven_drafts_of_a_long_block_are_verified() -> None:
    world = World()
    scheduler = world.scheduler(block_size=12)
    world.run(scheduler, 3)
    assert world.log == [7, 7, 7]


def test_draft_max_caps_and_room_caps() -> None:
    world = World()
    scheduler = world.scheduler(draft_max=3)
    world.run(scheduler, 2)
    world.run(scheduler, 2, budget=3, room=2)
    assert world.log == [3, 3, 2, 2]


def test_too_little_room_to_pay_is_plain_without_parking() -> None:
    """With a dear draft even one accepted draft of one loses."""
    world = World(draft_s=0.019)
    scheduler = world.scheduler()
    assert not scheduler.before_round(2, 1).draft
    assert scheduler.before_round(3, 2).draft
    assert scheduler.drain_events() == []


def test_without_a_calibration_plain_steps_come_first() -> None:
    world = World()
    scheduler = make_scheduler(SpecOptions(), block_size=5, costs=CostModel())
    assert scheduler.before_round(1000, 7).reason == "measuring: 3 plain steps"
    world.run(scheduler, 6)
    assert world.log == [-1, -1, -1, -1, 5, 5]  # the first pass is not counted


def test_the_plain_rate_is_measured_again_now_and_then() -> None:
    world = World()
    scheduler = world.scheduler()
    world.run(scheduler, 600)
    places = [place for place, k in enumerate(world.log) if k < 0]
    assert places[0] == 16
    assert max(b - a for a, b in pairwise(places)) <= 129
    assert len(places) <= 10


def test_one_stalled_measurement_of_the_plain_step_cannot_hold() -> None:
    """Rounds lose, but against the one plain step that was timed they seem to win."""
    world = World(plain_s=0.020, row_s=0.003, draft_s=0.017, accepts=1)
    costs = world.costs()
    costs.set_measured(1, 0.052)
    scheduler = make_scheduler(SpecOptions(), block_size=5, costs=costs)
    world.run(scheduler, 60)
    assert costs.plain_step_s == 0.020
    assert scheduler.state is SpecState.PARKED
    assert world.log.index(-1) <= 16


def test_when_plain_slows_with_the_context_it_finds_back() -> None:
    """Rounds grow dearer while the plain rate is old news: it may park, but not for good."""
    world = World(accepts=2, confidence=0.8)
    scheduler = world.scheduler()
    world.run(scheduler, 20)
    world.plain_s, world.row_s = 0.060, 0.006
    world.run(scheduler, 60)
    assert min(world.log[-15:]) > 0


def test_a_new_reply_tries_once_when_parked() -> None:
    world = World(accepts=0)
    scheduler = world.scheduler()
    world.run(scheduler, 4 + 32 + 1 + 10)
    scheduler.begin_request()
    world.log.clear()
    world.run(scheduler, 80)
    assert world.log[0] == 5
    assert plain_runs(world.log)[0] == 64


def test_the_user_keeps_a_losing_drafter_on_for_one_reply() -> None:
    world = World(accepts=0, confidence=0.02)
    scheduler = world.scheduler()
    world.run(scheduler, 10)
    scheduler.override(True)
    world.log.clear()
    world.run(scheduler, 50)
    assert set(world.log) == {1}
    scheduler.begin_request()
    world.log.clear()
    world.run(scheduler, 20)
    assert world.log.count(-1) > 10
    states = [event.state for event in scheduler.drain_events()]
    assert states == [SpecState.PARKED, SpecState.ON, SpecState.ON, SpecState.PARKED]


def test_a_reply_that_was_kept_on_says_so_until_the_next_one_begins() -> None:
    scheduler = World(accepts=0).scheduler()
    scheduler.override(True)
    scheduler.begin_request()
    scheduler.begin_request()
    assert [event.reason for event in scheduler.drain_events()] == [
        "on: you keep it on for this reply",
        "on: a new reply begins",
    ]


def test_one_stalled_round_does_not_park() -> None:
    world = World(accepts=1, row_s=0.001)
    scheduler = world.scheduler()
    world.run(scheduler, 5)
    scheduler.note_round(RoundOutcome(tested=5, accepted=5, draft_s=4.0, verify_s=9.0))
    world.run(scheduler, 10)
    assert -1 not in world.log
    assert scheduler.drain_events() == []


@pytest.mark.parametrize("accepts", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("row_s", [0.001, 0.006, 0.02])
def test_over_a_long_reply_it_is_never_far_below_plain(accepts: int, row_s: float) -> None:
    """The price of finding out: at most 2 % over 4,000 steps, whatever the world."""
    world = World(accepts=accepts, row_s=row_s, confidence=0.9)
    world.run(world.scheduler(), 4000)
    assert world.tokens * world.plain_s / world.seconds > 0.98
