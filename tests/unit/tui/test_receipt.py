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


def test_a_loss_without_any_round_says_why_too() -> None:
    usage = Usage(
        n_tokens=10, n_plain_steps=10, n_no_draft=10, draft_s=0.05, plain_s=0.18,
        decode_s=0.23, plain_step_s=0.018, saved_s=-0.05,
    )  # fmt: skip
    line = receipt.receipt(usage, FinishReason.STOP)
    assert line.endswith("lost 0.05 s (no draft was sure enough to be verified)")
