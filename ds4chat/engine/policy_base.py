"""What every drafting policy shares: its records, the user's cuts, states and events.

Pure: no clock, no arrays. A policy decides only *whether* and *how far* to draft; any decision
gives the same text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ds4chat.draft.verify import MAX_VERIFIED
from ds4chat.engine.costs import CostModel
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import SpecOptions, SpecState

_KEPT_LOG_LINES = 8  # of a log that nobody reads


class PlainKind(StrEnum):
    """Why a step was plain, for the counts."""

    ASKED = "asked"  # the caller, the user, or no drafter
    MEASURE = "measure"  # the plain rate is being measured
    PAUSE = "pause"  # the policy sits out a pause
    TAIL = "tail"  # the reply is nearly over
    NO_ROOM = "no_room"  # budget or context leave no draft
    NO_DRAFT = "no_draft"  # drafted, and every draft was cut
    FAILED = "failed"  # the drafter failed in this step


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether to draft now, and why, in words for a person; `kind` is for a plain step."""

    draft: bool
    reason: str
    kind: PlainKind = PlainKind.ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What a round that drafted came to.

    `tested` drafts were put before the target; 0 means that all were cut and the anchor went
    alone, `verify_s` is then the time of that plain step. `confidences` and `confidence0`
    (the first row's, also when it was cut; None: unknown) are estimates in 0..1, not logits.
    `end_drafted`: the proposal was cut before an end id, which the round judged.
    """

    tested: int
    accepted: int
    draft_s: float
    verify_s: float
    confidences: tuple[float, ...] = ()
    confidence0: float | None = None
    end_drafted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvent:
    """Speculation changed its state, with the reason in words."""

    state: SpecState
    reason: str


class Scheduler:
    """Base of the policies.

    Per step of a reply the session calls `before_round`; if that says draft, it drafts, calls
    `verify_len`, verifies, and calls `note_round`; otherwise it takes a plain step and calls
    `note_plain`. `drain_events` may be called at any time.

    Args:
        spec: the user's options.
        block_size: drafts that the drafter makes, anchor excluded.
        costs: measured times; kept up from the noted steps whatever the policy.
        threshold: confidence threshold that holds where the user gave none.

    Raises:
        SettingsError: an option is out of range.
    """

    def __init__(
        self, spec: SpecOptions, *, block_size: int, costs: CostModel, threshold: float
    ) -> None:
        draft_max = block_size if spec.draft_max is None else spec.draft_max
        if draft_max < 0:
            raise SettingsError(
                f"draft-max is {draft_max}; it must be 0 or more",
                f"use 1 to {min(block_size, MAX_VERIFIED)}, or auto",
            )
        if spec.confidence_threshold is not None:
            threshold = spec.confidence_threshold
        if not 0 <= threshold <= 1:
            raise SettingsError(
                f"the confidence threshold is {threshold}; it must be from 0 to 1",
                "0 switches the threshold off",
            )
        self.block_size = block_size
        self.costs = costs
        self.cap = min(draft_max, block_size, MAX_VERIFIED)
        self.threshold = threshold
        self._room = self.cap
        self._override: bool | None = None
        self._state = SpecState.ON
        self._events: list[PolicyEvent] = []
        self._log: deque[str] = deque(maxlen=_KEPT_LOG_LINES)

    @property
    def state(self) -> SpecState:
        """What speculation is doing now."""
        return self._state

    def begin_request(self) -> None:
        """A reply begins: the user's override of the last reply ends."""
        was_kept_on, self._override = self._override is True, None
        self._begin()
        if was_kept_on or self._state is SpecState.OFF:
            self._enter(SpecState.ON, "on: a new reply begins", again=True)

    def override(self, on: bool) -> None:
        """Keep drafting (True) or decode plainly (False) until this reply ends."""
        self._override = on
        if on:
            self._enter(SpecState.ON, "on: you keep it on for this reply", again=True)
            self._unpark()
        else:
            self._enter(SpecState.OFF, "off: you switched it off for this reply")

    def before_round(self, budget: int, room: int) -> Decision:
        """Decide whether to draft.

        Args:
            budget: tokens that may still be committed in this reply, the anchor included.
            room: most drafts that budget, context and rows allow (`verify.room_for_drafts`).
        """
        self._room = min(room, self.cap)
        if self._override is False:
            return Decision(draft=False, reason="plain: you switched speculation off")
        if self._room < 1:
            return Decision(draft=False, reason=self._why_no_room(), kind=PlainKind.NO_ROOM)
        if self._override:
            return Decision(draft=True, reason="on: you keep it on")
        return self._decide(budget)

    def verify_len(self, confidences: Sequence[float]) -> tuple[int, str]:
        """Choose how many drafts to verify, 0 for a plain step, and say why.

        Args:
            confidences: estimates in 0..1 that draft i is right if all before it are.
        """
        usable = list(confidences[: self._room])
        passed = 0
        while passed < len(usable) and (
            self.threshold == 0 or usable[passed] >= self.threshold
        ):
            passed += 1
        return self._choose_len(usable[:passed], cut=passed < len(usable))

    def note_round(self, outcome: RoundOutcome) -> None:
        """Take in what a round came to."""
        self.costs.note_draft(outcome.draft_s)
        self.costs.note(outcome.tested + 1, outcome.verify_s)
        self._note(outcome)

    def note_plain(self, step_s: float) -> None:
        """Take in a plain step that was decided by `before_round`."""
        self.costs.note(1, step_s)

    def drain_events(self) -> list[PolicyEvent]:
        """Give the state changes since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    def drain_log(self) -> tuple[str, ...]:
        """Give ds4's log lines of the last step, oldest first."""
        lines = tuple(self._log)
        self._log.clear()
        return lines

    def _begin(self) -> None:
        """Start counting a reply; a policy that counts per reply overrides this."""

    def _unpark(self) -> None:
        """Forget a pause; a policy that pauses overrides this."""

    def _decide(self, budget: int) -> Decision:
        """Decide when there is room and the user left it to the policy."""
        del budget
        return Decision(draft=True, reason=f"on: up to {self._room} drafts")

    def _choose_len(self, confidences: list[float], *, cut: bool) -> tuple[int, str]:
        """Choose among the drafts that passed the threshold; default: all of them."""
        if cut:
            return len(confidences), (
                f"{count(len(confidences), 'draft')}: the next one's confidence is below "
                f"{self.threshold:g}"
            )
        why = "the whole block" if len(confidences) == self.block_size else "all that may be"
        return len(confidences), f"{count(len(confidences), 'draft')}: {why}"

    def _note(self, outcome: RoundOutcome) -> None:
        """Take in a round; a policy that learns overrides this."""

    def _enter(self, state: SpecState, reason: str, *, again: bool = False) -> None:
        """Change the state and report it; `again` reports an unchanged state's new numbers."""
        if state is not self._state or again:
            self._state = state
            self._events.append(PolicyEvent(state=state, reason=reason))

    def _why_no_room(self) -> str:
        if self.cap < 1:
            return "plain: no drafts are allowed (draft-max 0 or no draft module)"
        return "plain: no room for a draft before the reply or the context ends"


def count(number: int, noun: str) -> str:
    """Write a number with its noun: `1 draft`, `2 drafts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
