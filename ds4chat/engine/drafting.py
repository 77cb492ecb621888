"""What goes before the target in a round: the policy's cut of a proposal, or a given one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.verify import cut_at_end
from ds4chat.engine.api import RoundReport
from ds4chat.engine.policy_base import PlainKind, Scheduler, count
from ds4chat.engine.runner import Proposal, Runner, Timeline
from ds4chat.engine.sampling import margin
from ds4chat.errors import Ds4Error
from ds4chat.protocol.types import Source, SpecOptions, Token

_UNKNOWN_CONFIDENCE = 0.5
"""Stands for the confidence of a draft that no drafter made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Drafts to verify, and why they are this many.

    `end` is an end id that was drafted right behind the kept drafts; `is_round` says whether
    the drafter ran (or a proposal was given), so that its time counts.
    """

    kept: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    end: int | None = None
    confidence0: float | None = None
    draft_s: float = 0.0
    reason: str
    is_round: bool
    kind: PlainKind = PlainKind.NO_DRAFT  # of a plain step

    @property
    def is_empty(self) -> bool:
        """Whether nothing is put before the target: the anchor goes alone."""
        return not self.kept and self.end is None

    def report(self, number: int, n_accepted: int, verify_s: float) -> RoundReport:
        """What happened, for the session's `last_report`; an empty round has the number 0."""
        return RoundReport(
            round=0 if self.is_empty else number,
            proposal=self.kept,
            confidences=self.confidences,
            n_accepted=n_accepted,
            draft_s=self.draft_s,
            verify_s=verify_s,
            reason=self.reason,
            kind=self.kind if self.is_empty else None,
        )

    def tokens(
        self, first: Token, rows: NDArray[np.float32], number: int, n: int
    ) -> list[Token]:
        """The first `n` committed tokens of round `number`.

        Args:
            first: the anchor, as a plain step would report it.
            rows: `(len(kept) + 1, V)` logits; row i judged draft i.
            number: the round's number; an empty round counts as a plain step, 0.
            n: tokens committed, 1..len(kept) + 1.
        """
        anchor = replace(first, round=0 if self.is_empty else number)
        accepted = [
            Token(
                id=self.kept[i],
                source=Source.ACCEPTED,
                round=number,
                position=i + 1,
                confidence=self.confidences[i],
                margin=margin(rows[i]),
                logit=float(rows[i][self.kept[i]]),
            )
            for i in range(n - 1)
        ]
        return [anchor, *accepted]


PLAIN_STEP = Draft(reason="plain: asked for", is_round=False, kind=PlainKind.ASKED)
"""What a step is that the caller wants plain."""


class Drafting:
    """Runs the drafter for one session; after a failure it is out of use, with the reason."""

    def __init__(self, runner: Runner, end_ids: frozenset[int]) -> None:
        self._runner = runner
        self.end_ids = end_ids
        self.error = ""

    def decide(
        self,
        timeline: Timeline,
        anchor: int,
        budget: int,
        room: int,
        spec: SpecOptions,
        scheduler: Scheduler,
    ) -> Draft:
        """Draft as far as the policy says."""
        if self._runner.drafter is None:
            return _plain("no support file")
        if not spec.enabled:
            return _plain("speculation is off")
        if self.error:
            return _plain(self.error)
        decision = scheduler.before_round(budget, room)
        if not decision.draft:
            return Draft(reason=decision.reason, is_round=False, kind=decision.kind)
        made = self._propose(timeline, anchor)
        if made is None:
            return Draft(reason=f"plain: {self.error}", is_round=False, kind=PlainKind.FAILED)
        before_end, end = cut_at_end(made.tokens, self.end_ids)
        n_kept, reason = scheduler.verify_len(made.confidences)
        is_end_next = n_kept > len(before_end)
        if is_end_next:
            n_kept = len(before_end)
            reason = f"{count(n_kept, 'draft')}: the next one ends the reply"
        return Draft(
            kept=made.tokens[:n_kept],
            confidences=made.confidences[:n_kept],
            end=end if is_end_next else None,
            confidence0=made.confidences[0],
            draft_s=made.draft_s,
            reason=reason,
            is_round=True,
        )

    def given(
        self, timeline: Timeline, anchor: int, room: int, proposal: Sequence[int]
    ) -> Draft:
        """Take a proposal from outside whole, as far as there is room.

        The drafter runs all the same, so that its time counts.
        """
        made = None
        if self._runner.drafter is not None and not self.error:
            made = self._propose(timeline, anchor)
        before_end, end = cut_at_end(proposal, self.end_ids)
        kept = before_end[:room]
        confidences = made.confidences[: len(kept)] if made is not None else ()
        confidences += (_UNKNOWN_CONFIDENCE,) * (len(kept) - len(confidences))
        return Draft(
            kept=kept,
            confidences=confidences,
            end=end if len(kept) == len(before_end) else None,
            confidence0=made.confidences[0] if made is not None else None,
            draft_s=made.draft_s if made is not None else 0.0,
            reason=f"{count(len(kept), 'draft')}: given from outside",
            is_round=True,
        )

    def _propose(self, timeline: Timeline, anchor: int) -> Proposal | None:
        try:
            made = self._runner.propose(timeline, anchor)
        except (RuntimeError, ValueError, Ds4Error) as error:
            self.error = f"the draft module failed: {error}"
            return None
        n_vocab = self._runner.target.config.n_vocab
        is_sound = all(0 <= t < n_vocab for t in made.tokens)
        if not is_sound or not all(math.isfinite(c) for c in made.confidences):
            self.error = "the draft module failed: it computed something that is not a number"
            return None
        return made


def _plain(reason: str) -> Draft:
    return Draft(reason=f"plain: {reason}", is_round=False, kind=PlainKind.ASKED)
