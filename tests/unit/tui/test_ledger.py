"""`/why` on replies that won, that lost, and how they lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.protocol.types import Usage
from ds4chat.tui.ledger import break_even, ledger, loss, speed_up, why
from tests.unit.tui.test_receipt import LOST, WON

# Ten rounds that paid, and thirty plain steps at 30 ms against a best one of 18 ms.
SLOW_STEPS = replace(
    WON, n_tokens=64, n_plain_steps=30, n_pause_skips=20, n_tail_skips=4, plain_s=0.9,
    decode_s=1.24, saved_s=64 * 0.018 - 1.24,
)  # fmt: skip
CUT = Usage(
    n_tokens=10, n_plain_steps=10, n_no_draft=10, draft_s=0.05, plain_s=0.18, decode_s=0.23,
    plain_step_s=0.018, saved_s=-0.05,
)  # fmt: skip


def test_a_reply_that_won() -> None:
    words = why(WON)
    assert "34 tokens, 4 of them reasoning" in words
    assert "10 rounds tested 50 drafts and accepted 24 (48%)" in words
    assert "4.0 ms of drafting and 30 ms of verifying" in words
    assert "must bring 1.89 tokens to break even; it brought 3.40, which is more" in words
    assert "Net: saved 0.27 s against plain decoding, 1.80x" in words
    assert "loss" not in words


def test_a_reply_that_lost_in_its_rounds() -> None:
    words = why(LOST)
    assert "which is less" in words
    assert "Net: lost 0.09 s against plain decoding, 0.74x" in words
    assert words.endswith("The largest part of the loss: 1.4 per block, break-even is 1.9.")


def test_a_reply_that_lost_outside_its_rounds() -> None:
    assert loss(SLOW_STEPS) == "plain steps slower than the best one"
    words = why(SLOW_STEPS)
    assert (
        "30 steps were plain: 20 while it was parked, 4 near the end of the reply, 6 to"
        in words
    )
    assert "rounds +0.27 s, plain steps -0.36 s" in words
    idle = replace(WON, decode_s=0.9, saved_s=34 * 0.018 - 0.9)
    assert loss(idle) == "time between the steps"


def test_a_reply_whose_drafts_were_all_cut() -> None:
    assert loss(CUT) == "no draft was sure enough to be verified"
    words = why(CUT)
    assert "The drafter ran 10 times for 0.05 s" in words
    assert "10 because every draft was cut" in words


def test_what_is_not_known_is_not_claimed() -> None:
    assert "nothing was drafted" in why(Usage(n_tokens=3))
    assert "not known" in why(replace(WON, plain_step_s=None, saved_s=None))
    assert ledger(Usage()) is None
    assert loss(replace(LOST, saved_s=None)) == ""
    assert loss(WON) == ""


def test_break_even_counts_all_drafting_and_speed_up_all_time() -> None:
    assert speed_up(WON) == pytest.approx(1.8)
    assert speed_up(Usage()) is None
    assert break_even(WON) == pytest.approx(0.034 / 0.018)
    assert break_even(replace(WON, draft_s=0.10)) == pytest.approx(0.040 / 0.018)
    assert break_even(replace(WON, plain_step_s=None)) is None


times = st.floats(0, 100)


@given(draft=times, verify=times, plain=times, rest=times, n_plain=st.integers(0, 99))
def test_the_parts_sum_to_what_was_saved(
    draft: float, verify: float, plain: float, rest: float, n_plain: int
) -> None:
    decode_s = draft + verify + plain + rest
    usage = Usage(
        n_tokens=n_plain + 7, n_rounds=3, n_plain_steps=n_plain, draft_s=draft,
        verify_s=verify, plain_s=plain, decode_s=decode_s, plain_step_s=0.02,
        saved_s=(n_plain + 7) * 0.02 - decode_s, accept_len=2.0,
    )  # fmt: skip
    parts = ledger(usage)
    assert parts is not None
    assert parts.rounds_s == pytest.approx(7 * 0.02 - draft - verify, abs=1e-6)
    assert parts.rest_s == pytest.approx(-rest, abs=1e-6)
    total = parts.rounds_s + parts.plain_s + parts.rest_s
    assert total == pytest.approx(usage.saved_s, abs=1e-6)
    assert bool(loss(usage)) is (usage.saved_s is not None and usage.saved_s < 0)


def test_a_reply_without_a_token_took_no_step() -> None:
    words = why(Usage(n_prompt=20))
    assert "nothing was decoded" in words
    assert "plain step" not in words
