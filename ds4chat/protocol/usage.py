"""Sums of `Usage` over the replies of a session: engine and screen show the same figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from ds4chat.protocol.types import Usage


class SessionStats:
    """Sums the replies of a session."""

    def __init__(self) -> None:
        self.n_replies = 0
        self._sum = Usage()

    @property
    def usage(self) -> Usage:
        """The sums; sizes and the plain step are the last reply's."""
        return self._sum

    def add(self, usage: Usage) -> None:
        """Add one finished reply."""
        self.n_replies += 1
        self._sum = _added(self._sum, usage)


def _added(left: Usage, right: Usage) -> Usage:
    n_rounds = left.n_rounds + right.n_rounds
    round_tokens = sum((u.accept_len or 0.0) * u.n_rounds for u in (left, right))
    known = [u.saved_s for u in (left, right) if u.saved_s is not None]
    positions = zip_longest(left.by_position, right.by_position, fillvalue=(0, 0))
    return replace(
        right,
        n_prompt=left.n_prompt + right.n_prompt,
        n_cached=left.n_cached + right.n_cached,
        n_tokens=left.n_tokens + right.n_tokens,
        n_thinking=left.n_thinking + right.n_thinking,
        n_rounds=n_rounds,
        n_plain_steps=left.n_plain_steps + right.n_plain_steps,
        n_drafted=left.n_drafted + right.n_drafted,
        n_accepted=left.n_accepted + right.n_accepted,
        prefill_s=left.prefill_s + right.prefill_s,
        first_token_s=left.first_token_s + right.first_token_s,
        decode_s=left.decode_s + right.decode_s,
        draft_s=left.draft_s + right.draft_s,
        verify_s=left.verify_s + right.verify_s,
        plain_s=left.plain_s + right.plain_s,
        plain_step_s=left.plain_step_s if right.plain_step_s is None else right.plain_step_s,
        saved_s=sum(known) if known else None,
        accept_len=round_tokens / n_rounds if n_rounds else None,
        by_position=tuple((a + c, b + d) for (a, b), (c, d) in positions),
        histogram=_summed(left.histogram, right.histogram),
        draft_lens=_summed(left.draft_lens, right.draft_lens),
        n_no_draft=left.n_no_draft + right.n_no_draft,
        n_no_room=left.n_no_room + right.n_no_room,
        n_pause_skips=left.n_pause_skips + right.n_pause_skips,
        n_tail_skips=left.n_tail_skips + right.n_tail_skips,
        n_draft_errors=left.n_draft_errors + right.n_draft_errors,
    )


def _summed(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(left, right, fillvalue=0))


def full_and_missed(usage: Usage) -> tuple[int, int]:
    """Count rounds whose drafts were all accepted, and rounds whose first draft was rejected.

    A rejection at place i is a round that tested i and did not accept it; a round without any
    rejection was full.
    """
    rejected = [tested - accepted for accepted, tested in usage.by_position]
    return usage.n_rounds - sum(rejected), rejected[0] if rejected else 0
