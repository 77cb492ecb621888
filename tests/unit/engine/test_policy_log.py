"""The window policy's decisions as ds4's log lines, and as causes of plain steps."""

from __future__ import annotations

from ds4chat.engine.policy_base import PlainKind
from ds4chat.engine.scheduler import Scheduler
from tests.unit.engine.test_policy_window import empty, outcome, window


def lines(scheduler: Scheduler) -> list[str]:
    return [line.removeprefix("ds4: DSpark scheduler ") for line in scheduler.drain_log()]


def test_a_low_window_and_its_skips() -> None:
    scheduler = window()
    for accepted in (1, 2, 1, 1):
        assert scheduler.before_round(1000, 7).draft
        assert lines(scheduler) == []
        scheduler.note_round(outcome(accepted))
    assert lines(scheduler) == [
        "pause cycles=4 accepted=5 avg=1.250 no_draft=0 extra_per_accept=11.200 "
        "saved=100.000 extra=56.000 skip=2"
    ]
    for remaining in (1, 0):
        decision = scheduler.before_round(1000, 7)
        assert (decision.draft, decision.kind) == (False, PlainKind.PAUSE)
        assert lines(scheduler) == [f"skip remaining={remaining}"]
    assert scheduler.before_round(1000, 7).draft


def test_a_proposal_without_a_draft() -> None:
    scheduler = window()
    scheduler.before_round(1000, 7)
    scheduler.note_round(empty(confidence0=0.25))
    assert lines(scheduler) == [
        "no-draft pause skip=7 accepted_total=0 long_accept=0 confidence0=0.250"
    ]
    warm = window()
    warm.before_round(1000, 7)
    warm.note_round(outcome(3))
    warm.before_round(1000, 7)
    warm.note_round(empty())
    assert lines(warm) == [
        "no-draft pause skip=3 accepted_total=3 long_accept=1 confidence0=n/a"
    ]


def test_the_end_of_a_reply() -> None:
    scheduler = window()
    decision = scheduler.before_round(8, 7)
    assert (decision.draft, decision.kind) == (False, PlainKind.TAIL)
    assert lines(scheduler) == ["tail skip max=8 min=10"]
    assert scheduler.before_round(1, 0).kind is PlainKind.NO_ROOM
    assert lines(scheduler) == []


def test_a_break_even_window() -> None:
    scheduler = window(break_even_window=2, window=9)
    for _ in range(2):
        scheduler.before_round(1000, 7)
        scheduler.note_round(outcome(0))
    assert lines(scheduler) == ["break-even pause cycles=2 saved=0.000 extra=28.000 skip=4"]


def test_a_log_that_nobody_reads_stays_small() -> None:
    scheduler = window(skip=1000)
    for _ in range(4):
        scheduler.before_round(1000, 7)
        scheduler.note_round(outcome(0))
    for _ in range(500):
        scheduler.before_round(1000, 7)
    assert len(scheduler.drain_log()) < 10
