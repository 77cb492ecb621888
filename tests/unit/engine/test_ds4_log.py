"""ds4's log lines, field by field."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from ds4chat.engine.api import RoundReport
from ds4chat.engine.ds4_log import scheduler_line, spec_lines, stats_line, step_lines
from ds4chat.engine.policy_base import PlainKind
from ds4chat.engine.stats import TurnStats
from ds4chat.protocol.types import Usage


def report(accepted: int, tested: int) -> RoundReport:
    return RoundReport(
        round=1 if tested else 0,
        proposal=tuple(range(40, 40 + tested)),
        confidences=(0.9,) * tested,
        n_accepted=accepted,
        draft_s=0.004,
        verify_s=0.030,
        reason="",
    )


def no_base() -> NoReturn:
    raise AssertionError("the target's choice at row 0 does not matter here")


@pytest.mark.parametrize(
    ("accepted", "tested", "lines"),
    [
        (
            5,
            5,
            [
                "ds4: DSpark spec enter accepted=0 max=252 valid=1 len=5 pos=16388",
                "ds4: DSpark spec direct-full drafted=5 accepted=6",
            ],
        ),
        (
            2,
            5,
            [
                "ds4: DSpark spec enter accepted=0 max=252 valid=1 len=5 pos=16388",
                "ds4: DSpark spec direct-partial drafted=5 committed=2 accepted=3",
            ],
        ),
        (
            0,
            3,
            [
                "ds4: DSpark spec enter accepted=0 max=252 valid=1 len=3 pos=16388",
                "ds4: DSpark spec miss first draft=40 base=77",
            ],
        ),
        (
            0,
            0,
            [
                "ds4: DSpark spec enter accepted=0 max=252 valid=0 len=0 pos=16388",
                "ds4: DSpark spec skip no-draft",
            ],
        ),
    ],
)
def test_each_outcome_has_its_lines(accepted: int, tested: int, lines: list[str]) -> None:
    found = spec_lines(report(accepted, tested), budget=252, pos=16388, base=77)
    assert list(found) == lines


def test_scheduler_lines() -> None:
    line = scheduler_line("tail skip", max=8, min=10)
    assert line == "ds4: DSpark scheduler tail skip max=8 min=10"


def test_a_plain_step_has_the_schedulers_lines_alone() -> None:
    paused = replace(report(0, 0), kind=PlainKind.PAUSE, policy_log=("a", "b"))
    assert step_lines(paused, budget=9, pos=1, base=no_base) == ("a", "b")


def test_a_pause_is_logged_behind_the_round_that_caused_it() -> None:
    low = replace(report(2, 5), policy_log=("pause",))
    lines = step_lines(low, budget=9, pos=1, base=no_base)
    assert [line.rsplit(" DSpark ")[-1].split(" ")[1] for line in lines[:2]] == [
        "enter",
        "direct-partial",
    ]
    assert lines[2:] == ("pause",)


def test_the_targets_choice_is_asked_for_after_a_miss() -> None:
    lines = step_lines(report(0, 5), budget=9, pos=1, base=lambda: 77)
    assert lines[-1] == "ds4: DSpark spec miss first draft=40 base=77"


def test_a_step_without_room_says_so() -> None:
    full = replace(report(0, 0), kind=PlainKind.NO_ROOM)
    assert step_lines(full, budget=1, pos=9, base=no_base) == (
        "ds4: DSpark spec enter accepted=0 max=1 valid=0 len=0 pos=9",
        "ds4: DSpark spec skip no-room",
    )


def test_the_stats_line() -> None:
    stats = TurnStats(5)
    for accepted, tested in [(5, 5), (2, 5), (0, 5), (3, 3)]:
        stats.note(report(accepted, tested))
    stats.note(replace(report(0, 0), kind=PlainKind.NO_DRAFT))
    kinds = [PlainKind.PAUSE] * 4 + [PlainKind.TAIL] * 3 + [PlainKind.NO_ROOM] * 2
    for kind in [*kinds, PlainKind.ASKED, PlainKind.MEASURE, PlainKind.FAILED]:
        stats.note(replace(report(0, 0), draft_s=0.0, kind=kind))
    usage = stats.usage(Usage(), plain_step_s=0.020)
    line = stats_line(usage)
    assert line == (
        "ds4: DSpark stats cycles=6 first_tokens=0 proposed=18 accepted_draft=10 "
        "accept_rate=55.6% avg_accept=1.667 seed_batches=4 full=2 partial=1 direct_full=2 "
        "direct_partial=1 replay_fallbacks=0 miss_first=1 no_draft=1 no_room=2 invalid=0 "
        "scheduler_skips=4 tail_skips=3 verifier_unavailable=0 errors=1 "
        "time_ms propose=20.0 snapshot=0.0 verify=120.0 replay=0.0 spec_total=120.0 "
        "target=390.0 saved=200.0 net_saved=n/a "
        "draft_len_hist=0:1,3:1,5:3 accepted_len_hist=0:1,2:1,3:1,5:1"
    )


def test_the_stats_line_of_nothing() -> None:
    assert "accept_rate=0.0% avg_accept=0.000" in stats_line(Usage())
