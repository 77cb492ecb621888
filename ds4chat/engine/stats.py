"""What speculation did and bought: the figures of a reply.

Pure: durations come in, no clock is read. Every figure is defined at `protocol.types.Usage`.
Time saved is measured against the plain step of this process, never taken from a table.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
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
