"""Whether both lanes wrote the same tokens, and where they did not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ds4chat.protocol.types import FinishReason
from ds4chat.tui.race.lane import Lane


class Outcome(StrEnum):
    """What a comparison can come to."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    UNFINISHED = "unfinished"  # equal as far as both went, but a lane was stopped or failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one lane chose where they part. `id` None: its reply ended there."""

    id: int | None
    text: str = ""
    logit: float | None = None
    margin: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The comparison. `n_equal` tokens are the same in both lanes."""

    outcome: Outcome
    n_equal: int
    plain: Choice | None = None  # where they differ
    spec: Choice | None = None

    @property
    def gap(self) -> float | None:
        """Distance between the logits of the two choices; None when one is unknown."""
        if self.plain is None or self.spec is None:
            return None
        if self.plain.logit is None or self.spec.logit is None:
            return None
        return abs(self.plain.logit - self.spec.logit)

    def words(self) -> str:
        """One or two sentences for a person."""
        match self.outcome:
            case Outcome.IDENTICAL:
                return f"identical: all {self.n_equal} tokens are the same"
            case Outcome.UNFINISHED:
                return f"unfinished: the same as far as both went, {self.n_equal} tokens"
            case Outcome.DIFFERENT:
                return self._difference()

    def _difference(self) -> str:
        gap = "unknown" if self.gap is None else f"{self.gap:.6g}"
        assert self.plain is not None
        assert self.spec is not None
        return (
            f"DIFFERENT at token {self.n_equal + 1}: plain {_said(self.plain)}; speculative "
            f"{_said(self.spec)}; gap of the two logits {gap}. This is a defect."
        )


def compare(plain: Lane, spec: Lane) -> Verdict:
    """Compare two lanes token by token, and how they ended."""
    ours, theirs = plain.ids, spec.ids
    shorter = min(len(ours), len(theirs))
    n_equal = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
    if n_equal < shorter:
        return _different(plain, spec, n_equal)
    if not (plain.is_complete and spec.is_complete):
        return Verdict(outcome=Outcome.UNFINISHED, n_equal=n_equal)
    if len(ours) != len(theirs) or _reason(plain) is not _reason(spec):
        return _different(plain, spec, n_equal)
    return Verdict(outcome=Outcome.IDENTICAL, n_equal=n_equal)


def _different(plain: Lane, spec: Lane, at: int) -> Verdict:
    return Verdict(
        outcome=Outcome.DIFFERENT,
        n_equal=at,
        plain=_choice(plain, at),
        spec=_choice(spec, at),
    )


def _choice(lane: Lane, at: int) -> Choice:
    if at >= len(lane.ids):
        return Choice(id=None)
    if at >= len(lane.tokens):
        return Choice(id=lane.ids[at])
    placed = lane.tokens[at]
    token = placed.token
    return Choice(
        id=token.id,
        text=placed.text,
        logit=token.logit,
        margin=token.margin,
        source=str(token.source),
    )


def _reason(lane: Lane) -> FinishReason | None:
    return lane.end.reason if lane.end is not None else None


def _said(choice: Choice) -> str:
    if choice.id is None:
        return "ended there"
    if choice.logit is None or choice.margin is None:
        return f"chose {choice.text!r} (id {choice.id})"
    return (
        f"chose {choice.text!r} (id {choice.id}, logit {choice.logit:.6g}, "
        f"{choice.margin:.6g} above the next)"
    )
