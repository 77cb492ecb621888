"""ds4's log lines, field by field."""

from __future__ import annotations

import pytest

from ds4chat.engine.api import RoundReport
from ds4chat.engine.ds4_log import skip_line, spec_lines, stats_line, tail_skip_line
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
    assert (
        tail_skip_line(budget=8, minimum=10) == "ds4: DSpark scheduler tail skip max=8 min=10"
    )
    assert skip_line(remaining=31) == "ds4: DSpark scheduler skip remaining=31"


def test_the_stats_line() -> None:
    stats = TurnStats(5)
    for accepted, tested in [(5, 5), (2, 5), (0, 5), (3, 3), (0, 0)]:
        stats.note(report(accepted, tested))
    usage = stats.usage(Usage(), plain_step_s=0.020)
    line = stats_line(usage, n_no_draft=1, n_scheduler_skips=4)
    assert line == (
        "ds4: DSpark stats cycles=5 first_tokens=0 proposed=18 accepted_draft=10 "
        "accept_rate=55.6% avg_accept=2.000 seed_batches=4 full=2 partial=1 direct_full=2 "
        "direct_partial=1 replay_fallbacks=0 miss_first=1 no_draft=1 scheduler_skips=4 "
        "time_ms propose=20.0 verify=120.0 spec_total=120.0 target=30.0 saved=200.0 "
        "net_saved=n/a accepted_len_hist=0:1,2:1,3:1,5:1"
    )


def test_the_stats_line_of_nothing() -> None:
    assert "accept_rate=0.0% avg_accept=0.000" in stats_line(Usage())
