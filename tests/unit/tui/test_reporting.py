"""`/stats` leaves no count, time or histogram out."""

from __future__ import annotations

from ds4chat.protocol.types import Usage
from ds4chat.tui.reporting import counts

REPLY = Usage(
    n_tokens=34, n_thinking=4, n_rounds=10, n_plain_steps=9, n_drafted=42, n_accepted=24,
    prefill_s=0.2, decode_s=0.74, draft_s=0.04, verify_s=0.30, plain_s=0.2,
    by_position=((7, 10), (6, 7), (5, 6), (3, 4), (3, 3)), histogram=(3, 1, 1, 1, 1, 3),
    draft_lens=(2, 0, 0, 4, 0, 6), n_no_draft=2, n_no_room=1, n_pause_skips=3,
    n_tail_skips=2, n_draft_errors=1,
)  # fmt: skip


def test_every_figure_of_a_reply_is_shown() -> None:
    assert [line.strip() for line in counts(REPLY)] == [
        "tokens: 34, 4 of them reasoning",
        "rounds: 10, 4 full, 3 partial, 3 missed the first draft",
        "drafts: 42 tested, 24 accepted (57%)",
        "by position: 0.70 0.86 0.83 0.75 1.00",
        "accepted a round: 0:3  1:1  2:1  3:1  4:1  5:3",
        "tested a step: 0:2  3:4  5:6",
        "plain steps: 9, 3 parked, 2 all drafts cut, 2 near the end, 1 no room, "
        "1 drafter failed",
        "time: prefill 0.2 s, draft 0.04 s, verify 0.3 s, plain 0.2 s, between 0.2 s",
    ]


def test_a_plain_reply_divides_by_nothing() -> None:
    lines = counts(Usage(n_tokens=3, n_plain_steps=3))
    assert "  by position: nothing tested" in lines
    assert "  accepted a round: none" in lines
