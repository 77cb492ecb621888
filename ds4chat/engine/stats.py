"""What speculation did and bought: the figures of a reply and of a session.

Pure: durations come in, no clock is read. Every figure is defined at `protocol.types.Usage`.
Time saved is measured against the plain step of this process, never taken from a table.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from itertools import zip_longest
from statistics import median_low

from ds4chat.engine.api import RoundReport
from ds4chat.engine.policy_base import PlainKind
from ds4chat.protocol.types import Usage

_KEPT_STEPS = 512  # plain steps of a reply behind their median
_MIN_STEPS = 3  # fewer make no rate


class TurnStats:
    """Counts the rounds and plain steps of one reply.

    Args:
        block_size: drafts that the drafter makes, anchor excluded; 0 without a drafter.
    """

    def __init__(self, block_size: int) -> None:
        self._accepted = [0] * block_size  # by draft position
        self._tested = [0] * block_size
        self._histogram = [0] * (block_size + 1)
        self._draft_lens = [0] * (block_size + 1)
        self._kinds: Counter[PlainKind] = Counter()
        self._plain_steps: deque[float] = deque(maxlen=_KEPT_STEPS)
        self._n_tokens = 0
        self._n_plain_steps = 0
        self._n_drafted = 0
        self._draft_s = 0.0
        self._verify_s = 0.0
        self._plain_s = 0.0
        self._ends_in_round = False
        self._is_ended = False

    def note(self, report: RoundReport, *, n_committed: int | None = None) -> None:
        """Count one round, or one plain step (`report.round` 0).

        Args:
            report: what the step did.
            n_committed: tokens that it committed; None: the anchor and the accepted drafts.
        """
        self._n_tokens += report.n_accepted + 1 if n_committed is None else n_committed
        self._draft_s += report.draft_s
        self._ends_in_round = report.round != 0
        n_tested = len(report.proposal)
        if report.round != 0 or report.kind is PlainKind.NO_DRAFT:
            self._draft_lens[n_tested] += 1
        if report.round == 0:
            self._n_plain_steps += 1
            self._plain_s += report.verify_s
            self._plain_steps.append(report.verify_s)
            self._kinds[report.kind or PlainKind.ASKED] += 1
            return
        self._n_drafted += n_tested
        self._verify_s += report.verify_s
        self._histogram[report.n_accepted] += 1
        for idx in range(min(n_tested, report.n_accepted + 1)):
            self._tested[idx] += 1
            self._accepted[idx] += idx < report.n_accepted

    def note_end(self) -> None:
        """The target chose an end token: it is not counted as the last round's own token."""
        self._is_ended = True

    def usage(self, base: Usage, *, plain_step_s: float | None) -> Usage:
        """Give the figures so far.

        Args:
            base: what is not counted here (prompt, prefill, thinking, sizes). Its `decode_s`
                stands if it is not 0, else the times of all steps are summed.
            plain_step_s: the plain step of this process in seconds, None if never timed. If the
                reply's own plain steps were faster, their median counts: the best one.
        """
        plain_step_s = self._best_step(plain_step_s)
        n_rounds, n_accepted = sum(self._histogram), sum(self._accepted)
        decode_s = base.decode_s or self._draft_s + self._verify_s + self._plain_s
        n_own = n_rounds - (self._is_ended and self._ends_in_round)
        is_compared = plain_step_s is not None and (n_rounds > 0 or self._draft_s > 0)
        return replace(
            base,
            n_tokens=self._n_tokens,
            n_rounds=n_rounds,
            n_plain_steps=self._n_plain_steps,
            n_drafted=self._n_drafted,
            n_accepted=n_accepted,
            decode_s=decode_s,
            draft_s=self._draft_s,
            verify_s=self._verify_s,
            plain_s=self._plain_s,
            plain_step_s=plain_step_s,
            saved_s=self._n_tokens * (plain_step_s or 0.0) - decode_s if is_compared else None,
            accept_len=(n_accepted + n_own) / n_rounds if n_rounds else None,
            by_position=tuple(zip(self._accepted, self._tested, strict=True)),
            histogram=tuple(self._histogram),
            draft_lens=tuple(self._draft_lens),
            n_no_draft=self._kinds[PlainKind.NO_DRAFT],
            n_no_room=self._kinds[PlainKind.NO_ROOM],
            n_pause_skips=self._kinds[PlainKind.PAUSE],
            n_tail_skips=self._kinds[PlainKind.TAIL],
            n_draft_errors=self._kinds[PlainKind.FAILED],
        )

    def _best_step(self, known_s: float | None) -> float | None:
        if len(self._plain_steps) < _MIN_STEPS:
            return known_s
        own_s = median_low(self._plain_steps)
        return own_s if known_s is None else min(known_s, own_s)


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
