"""The figures of replies and sessions, and what the ledger says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4chat.engine.api import RoundReport
from ds4chat.engine.policy_base import PlainKind
from ds4chat.engine.stats import TurnStats
from ds4chat.protocol.types import Usage
from ds4chat.protocol.usage import SessionStats


def verified(accepted: int, tested: int = 5, seconds: float = 0.030) -> RoundReport:
    return RoundReport(
        round=1,
        proposal=tuple(range(tested)),
        confidences=(0.9,) * tested,
        n_accepted=accepted,
        draft_s=0.004,
        verify_s=seconds,
        reason="",
    )


def plain(draft_s: float = 0.0, seconds: float = 0.020) -> RoundReport:
    return RoundReport(
        round=0,
        proposal=(),
        confidences=(),
        n_accepted=0,
        draft_s=draft_s,
        verify_s=seconds,
        reason="",
    )


def usage_of(
    *reports: RoundReport, plain_step_s: float | None = 0.020, ended: bool = False
) -> Usage:
    stats = TurnStats(5)
    for report in reports:
        stats.note(report)
    if ended:
        stats.note_end()
    return stats.usage(Usage(n_prompt=7), plain_step_s=plain_step_s)


@pytest.mark.parametrize(("accepted", "rate"), [(0, 0.0), (3, 0.6), (5, 1.0)])
def test_accepted_over_tested(accepted: int, rate: float) -> None:
    usage = usage_of(verified(accepted), verified(accepted))
    assert usage.n_accepted / usage.n_drafted == rate
    assert usage.accept_len == accepted + 1


def test_a_cut_proposal_counts_what_was_tested() -> None:
    usage = usage_of(verified(3, tested=3), verified(1, tested=2))
    assert (usage.n_drafted, usage.n_accepted) == (5, 4)


def test_nothing_tested_has_no_rate() -> None:
    assert usage_of(plain()).n_drafted == 0
    assert usage_of(plain()).accept_len is None


def test_by_position_counts_only_rounds_that_got_there() -> None:
    usage = usage_of(verified(0), verified(3), verified(5), verified(2, tested=2))
    assert usage.by_position == ((3, 4), (3, 3), (2, 2), (1, 2), (1, 1))
    assert usage.histogram == (1, 0, 1, 1, 0, 1)


def test_plain_steps_are_in_no_acceptance_figure() -> None:
    usage = usage_of(verified(4), plain(), plain(draft_s=0.004))
    assert usage.accept_len == 5
    assert (usage.n_rounds, usage.n_plain_steps, usage.n_tokens) == (1, 2, 7)
    assert usage.draft_s == pytest.approx(0.008)
    assert usage.plain_s == pytest.approx(0.040)


def test_a_stop_token_takes_its_place_from_the_round_that_it_ended() -> None:
    assert usage_of(verified(3), verified(2), ended=True).accept_len == (4 + 2) / 2
    assert usage_of(verified(3), plain(), ended=True).accept_len == 4


def test_time_saved_is_against_the_plain_step_of_this_process() -> None:
    usage = usage_of(verified(5), plain())
    assert usage.decode_s == pytest.approx(0.054)
    assert usage.saved_s == pytest.approx(7 * 0.020 - 0.054)
    assert usage_of(verified(5), plain_step_s=None).saved_s is None
    assert usage_of(plain()).saved_s is None


def test_the_engines_own_decode_time_stands() -> None:
    stats = TurnStats(5)
    stats.note(verified(5), n_committed=2)
    usage = stats.usage(Usage(decode_s=0.5), plain_step_s=0.020)
    assert usage.n_tokens == 2
    assert usage.saved_s == pytest.approx(2 * 0.020 - 0.5)


def test_a_session_sums_its_replies() -> None:
    first = usage_of(verified(5), verified(0), plain())
    second = usage_of(verified(2), ended=True)
    session = SessionStats()
    session.add(first)
    session.add(second)
    total = session.usage
    assert session.n_replies == 2
    assert (total.n_rounds, total.n_plain_steps, total.n_tokens) == (3, 1, 11)
    assert total.accept_len == pytest.approx((6 + 1 + 2) / 3)
    assert total.by_position == ((2, 3), (2, 2), (1, 2), (1, 1), (1, 1))
    assert total.histogram == (1, 0, 1, 0, 0, 1)
    assert total.saved_s == pytest.approx((first.saved_s or 0) + (second.saved_s or 0))
    assert total.n_prompt == 14
    assert total.draft_lens == (0, 0, 0, 0, 0, 3)


def test_plain_steps_are_counted_by_their_cause() -> None:
    kinds = [PlainKind.PAUSE, PlainKind.TAIL, PlainKind.NO_DRAFT, PlainKind.FAILED]
    usage = usage_of(*(replace(plain(), kind=kind) for kind in [*kinds, PlainKind.PAUSE]))
    session = SessionStats()
    for _ in range(2):
        session.add(usage)
    total = session.usage
    assert (total.n_pause_skips, total.n_tail_skips, total.n_no_draft) == (4, 2, 2)
    assert (total.n_draft_errors, total.n_no_room, total.n_plain_steps) == (2, 0, 10)
    assert total.draft_lens == (2, 0, 0, 0, 0, 0)


def test_a_session_of_unequal_blocks_and_unknown_savings() -> None:
    session = SessionStats()
    session.add(usage_of(plain()))
    assert session.usage.saved_s is None
    session.add(Usage(n_rounds=1, accept_len=1.0, by_position=((0, 1),), histogram=(1, 0)))
    assert session.usage.by_position == ((0, 1), (0, 0), (0, 0), (0, 0), (0, 0))
    assert session.usage.plain_step_s == 0.020


def test_the_replys_own_plain_steps_count_where_they_were_faster() -> None:
    steps = [plain(seconds=s) for s in (0.010, 0.500, 0.012)]
    assert usage_of(*steps[:2], verified(1)).plain_step_s == 0.020
    usage = usage_of(*steps, verified(1))
    assert usage.plain_step_s == 0.012
    assert usage.saved_s == pytest.approx(5 * 0.012 - usage.decode_s)
    assert usage_of(*steps, plain_step_s=None).plain_step_s == 0.012
    assert usage_of(*steps, plain_step_s=0.005).plain_step_s == 0.005
