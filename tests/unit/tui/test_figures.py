from __future__ import annotations

import pytest

from ds4chat.protocol.events import PlainStep, PolicyChanged, RoundVerified
from ds4chat.protocol.types import SpecState, Usage
from ds4chat.tui.figures import N_RECENT, Figures


def verified(
    n_accepted: int, confidences: tuple[float, ...] = (0.9,) * 5, draft_s: float = 0.004
) -> RoundVerified:
    n = len(confidences)
    return RoundVerified(
        turn_id=1,
        round=1,
        proposal_ids=tuple(range(n)),
        proposal_texts=("x",) * n,
        confidences=confidences,
        n_accepted=n_accepted,
        draft_s=draft_s,
        verify_s=0.03,
    )


def test_position_i_counts_rounds_in_which_all_before_were_right() -> None:
    figures = Figures(block_size=5)
    for n_accepted in (0, 3, 5):
        figures.add_round(verified(n_accepted))
    counts = figures.counts
    assert counts.by_position == [(2, 3), (2, 2), (2, 2), (1, 2), (1, 1)]
    assert counts.histogram == [1, 0, 0, 1, 0, 1]
    assert figures.accept_len == pytest.approx((1 + 4 + 6) / 3)


def test_short_proposals_do_not_test_what_they_lack() -> None:
    figures = Figures(block_size=5)
    figures.add_round(verified(2, (0.9, 0.9)))
    assert figures.counts.by_position == [(1, 1), (1, 1)]


def test_confidence_bins_stop_after_the_first_wrong_draft() -> None:
    figures = Figures(block_size=5)
    figures.add_round(verified(1, (0.95, 0.1, 0.5, 1.0)))
    assert figures.bins == [(1, 0), (0, 0), (0, 0), (0, 0), (1, 1)]
    figures.add_round(verified(1, (1.0,)))
    assert figures.bins[4] == (2, 2)


def test_a_finished_turn_replaces_its_live_counts() -> None:
    figures = Figures(block_size=5)
    figures.add_round(verified(3))
    usage = Usage(
        n_rounds=1,
        accept_len=3.0,
        by_position=((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
        histogram=(0, 0, 0, 1, 0, 0),
        decode_s=1.0,
        saved_s=0.5,
        plain_step_s=0.02,
    )
    figures.finish_turn(usage)
    assert figures.accept_len == 3.0
    assert figures.counts.by_position == list(usage.by_position)
    figures.add_round(verified(5))
    assert figures.accept_len == pytest.approx((3.0 + 6) / 2)
    figures.finish_turn(usage)
    assert figures.counts.n_rounds == 2
    assert (figures.saved_s, figures.ratio) == (1.0, 1.5)
    assert figures.plain_s == 0.02


def test_a_turn_without_figures_keeps_what_was_counted() -> None:
    figures = Figures(block_size=5)
    figures.add_round(verified(3))
    figures.finish_turn(None)
    figures.add_round(verified(3))
    assert figures.counts.n_rounds == 2


def test_times_are_medians_and_the_sparkline_is_bounded() -> None:
    figures = Figures(block_size=5)
    assert (figures.draft_s, figures.plain_s, figures.accept_len) == (None, None, None)
    for i in range(N_RECENT + 5):
        figures.add_round(verified(i % 6, draft_s=1.0 if i == 0 else 0.004))
    figures.add_plain(PlainStep(turn_id=1, step_s=0.02, reason="off"))
    assert len(figures.recent) == N_RECENT
    assert (figures.draft_s, figures.plain_s) == (0.004, 0.02)


def test_policy() -> None:
    figures = Figures()
    figures.set_policy(PolicyChanged(turn_id=1, state=SpecState.PARKED, reason="loses"))
    assert (figures.state, figures.reason) == (SpecState.PARKED, "loses")
