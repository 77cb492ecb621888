from __future__ import annotations

from dataclasses import replace

import pytest

from ds4chat.protocol.types import FinishReason, Usage
from ds4chat.tui import receipt

# 10 rounds of 34 ms against 18 ms plain steps.
WON = Usage(
    n_prompt=120,
    n_cached=100,
    n_tokens=34,
    n_thinking=4,
    n_rounds=10,
    n_drafted=50,
    n_accepted=24,
    prefill_s=0.2,
    first_token_s=0.3,
    decode_s=0.34,
    draft_s=0.04,
    verify_s=0.30,
    plain_step_s=0.018,
    saved_s=0.272,
    accept_len=3.4,
)
LOST = replace(WON, n_tokens=14, n_accepted=4, accept_len=1.4, saved_s=-0.088)


def test_receipt_of_a_gain() -> None:
    assert receipt.receipt(WON, FinishReason.STOP) == (
        "34 tok · 100.0 tok/s · spec · accept 3.4 · first 0.3 s · saved 0.3 s"
    )


def test_receipt_of_a_loss_says_why() -> None:
    line = receipt.receipt(LOST, FinishReason.LENGTH)
    assert line.startswith("length limit · 14 tok")
    assert line.endswith("lost 0.09 s (1.4 per block, break-even is 1.9)")


def test_receipt_of_plain_decoding_claims_nothing() -> None:
    usage = Usage(
        n_tokens=10, n_plain_steps=10, decode_s=0.2, plain_step_s=0.018, saved_s=-0.02
    )
    assert receipt.receipt(usage, FinishReason.STOP) == "10 tok · 50.0 tok/s · plain"


def test_receipt_of_nothing() -> None:
    assert receipt.receipt(Usage(), FinishReason.CANCELLED) == "stopped · 0 tok · plain"


@pytest.mark.parametrize("reason", list(FinishReason))
def test_every_ending_has_words(reason: FinishReason) -> None:
    has_words = not receipt.receipt(WON, reason).startswith("34 tok")
    assert has_words == (reason is not FinishReason.STOP)


def test_mixed_mode_counts_the_plain_steps() -> None:
    assert receipt.mode(replace(WON, n_plain_steps=30)) == "spec, 30 of 40 steps plain"
    assert receipt.mode(replace(WON, n_plain_steps=1)) == "spec"


def test_speed_up_and_break_even() -> None:
    assert receipt.speed_up(WON) == pytest.approx(1.8)
    assert receipt.break_even(WON) == pytest.approx(0.034 / 0.018)
    assert receipt.break_even(replace(WON, plain_step_s=None)) is None
    assert receipt.speed_up(Usage()) is None
    assert receipt.loss(WON) == ""


def test_why_in_words() -> None:
    words = receipt.why(WON)
    assert "34 tokens, 4 of them reasoning" in words
    assert "10 rounds tested 50 drafts and accepted 24 (48%)" in words
    assert "4.0 ms of drafting and 30 ms of verifying" in words
    assert "must bring 1.89 tokens to break even; it brought 3.40, which is more" in words
    assert "+0.27 s against plain decoding, 1.80x" in words
    assert "which is less" in receipt.why(LOST)
    assert "nothing was drafted" in receipt.why(Usage(n_tokens=3))
    assert "not known" in receipt.why(replace(WON, plain_step_s=None, saved_s=None))
