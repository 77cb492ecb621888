"""The figures of a reply."""

from __future__ import annotations

import pytest

from ds4chat.engine.api import RoundReport
from ds4chat.engine.turn_usage import PlainRate, UsageMeter


def a_round(n_accepted: int, n_tested: int = 5) -> RoundReport:
    return RoundReport(
        round=1,
        proposal=tuple(range(n_tested)),
        confidences=(0.5,) * n_tested,
        n_accepted=n_accepted,
        draft_s=0.25,
        verify_s=0.5,
        reason="",
    )


def meter() -> UsageMeter:
    return UsageMeter(n_prompt=3, block_size=5, plain_rate=PlainRate())


@pytest.mark.parametrize(("n_accepted", "rate"), [(0, 0.0), (3, 0.6), (5, 1.0)])
def test_accepted_of_tested(n_accepted: int, rate: float) -> None:
    counted = meter()
    counted.count(a_round(n_accepted))
    usage = counted.usage(kv_bytes=0, n_context=0)
    assert usage.n_accepted / usage.n_drafted == rate
    assert usage.accept_len == n_accepted + 1
    assert usage.histogram == tuple(int(i == n_accepted) for i in range(6))


def test_a_position_is_tested_only_while_all_before_it_were_accepted() -> None:
    counted = meter()
    for n_accepted, n_tested in ((0, 5), (2, 2), (2, 5), (5, 5)):
        counted.count(a_round(n_accepted, n_tested))
    usage = counted.usage(kv_bytes=0, n_context=0)
    assert usage.by_position == ((3, 4), (3, 3), (1, 2), (1, 1), (1, 1))


def test_an_end_token_after_a_round_is_not_in_its_accept_len() -> None:
    counted = meter()
    counted.count(a_round(2))
    counted.end_by_stop_token()
    assert counted.usage(kv_bytes=0, n_context=0).accept_len == 2


def test_an_end_token_after_a_plain_step_changes_no_round() -> None:
    counted = meter()
    counted.count(a_round(2))
    counted.count(
        RoundReport(
            round=0, proposal=(), confidences=(), n_accepted=0,
            draft_s=0.0, verify_s=2.0, reason="plain",
        )
    )  # fmt: skip
    counted.end_by_stop_token()
    usage = counted.usage(kv_bytes=0, n_context=0)
    assert usage.accept_len == 3
    assert (usage.plain_s, usage.verify_s, usage.draft_s) == (2.0, 0.5, 0.25)


def test_best_plain_step_is_a_running_median_that_only_falls() -> None:
    rate = PlainRate(window=3)
    seen = []
    for step_s in (9.0, 3.0, 1.0, 2.0, 8.0, 8.0, 8.0):
        rate.add(step_s)
        seen.append(rate.step_s)
    assert seen == [None, None, 3.0, 2.0, 2.0, 2.0, 2.0]
