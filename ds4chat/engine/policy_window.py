"""ds4's scheduler: a tumbling window over attempts, with pauses after poor ones.

Decision order, counters, pauses and defaults follow ds4's DSpark scheduler. Confidences are
estimates in 0..1 (the sigmoid), also in the check for a cold start. It only decides whether to
attempt a round; a confidence threshold (0.6 unless the user says otherwise) cuts the proposal.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ds4chat.engine.costs import CostModel
from ds4chat.engine.ds4_log import scheduler_line
from ds4chat.engine.policy_base import Decision, PlainKind, RoundOutcome, Scheduler, count
from ds4chat.errors import SettingsError
from ds4chat.protocol.types import SpecOptions, SpecState

DEFAULT_THRESHOLD = 0.6
_PREFIX = "DS4_DSPARK_SCHEDULER"
_LONG_ACCEPT = 2  # a round that accepted more than this many drafts is a long accept


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowKnobs:
    """The knobs of ds4's scheduler, in ds4's units. A limit of 0 is off.

    Attributes:
        enabled: `DS4_DSPARK_SCHEDULER`; False always attempts.
        window: `DS4_DSPARK_SCHEDULER_WINDOW`; attempts per window.
        skip: `DS4_DSPARK_SCHEDULER_SKIP`; steps paused after a low window. None: 32 where the
            anchor is verified together with the drafts (`seed_batched`), else 2.
        slow_skip: `DS4_DSPARK_SCHEDULER_SLOW_SKIP`; at least so many after a slow,
            unprofitable or mostly draftless window.
        min_avg_milli: `DS4_DSPARK_SCHEDULER_MIN_AVG_MILLI`; a window is low below this mean of
            accepted drafts, in thousandths.
        max_ms_per_accept_milli: `DS4_DSPARK_SCHEDULER_MAX_MS_PER_ACCEPT_MILLI`; extra
            milliseconds per accepted draft above which a window is slow, in thousandths.
        max_extra_saved_ratio_milli: `DS4_DSPARK_SCHEDULER_MAX_EXTRA_SAVED_RATIO_MILLI`; extra
            over saved time above which a window is unprofitable, in thousandths.
        break_even_window: `DS4_DSPARK_SCHEDULER_BREAK_EVEN_WINDOW`; attempts over which the
            saved time must cover the extra time.
        no_draft_skip: `DS4_DSPARK_SCHEDULER_NO_DRAFT_SKIP`; pause after an empty proposal.
        short_accept_no_draft_skip: `DS4_DSPARK_SCHEDULER_SHORT_ACCEPT_NO_DRAFT_SKIP`; the same
            when this reply accepted drafts, but never more than two in a round.
        cold_low_confidence_skip: `DS4_DSPARK_SCHEDULER_COLD_LOW_CONFIDENCE_SKIP`; the same
            when nothing was ever accepted and the first confidence is low.
        cold_low_confidence_milli: `DS4_DSPARK_SCHEDULER_COLD_LOW_CONFIDENCE_MILLI`; low means
            at most this, in thousandths.
        tail_min_tokens: `DS4_DSPARK_SCHEDULER_TAIL_MIN_TOKENS`; no drafting below this budget.
        seed_batched: `DS4_DSPARK_SEED_BATCH`; whether the anchor is verified together with the
            drafts, as our rounds do.
    """

    enabled: bool = True
    window: int = 4
    skip: int | None = None
    slow_skip: int = 4
    min_avg_milli: int = 1500
    max_ms_per_accept_milli: int = 0
    max_extra_saved_ratio_milli: int = 0
    break_even_window: int = 0
    no_draft_skip: int = 3
    short_accept_no_draft_skip: int = 4
    cold_low_confidence_skip: int = 7
    cold_low_confidence_milli: int = 500
    tail_min_tokens: int = 10
    seed_batched: bool = True

    @classmethod
    def from_mapping(cls, values: Mapping[str, str | int]) -> WindowKnobs:
        """Read the knobs from ds4's variables; other names are left alone.

        Raises:
            SettingsError: an unknown `DS4_DSPARK_SCHEDULER` name, or a value out of range.
        """
        names = {_variable(field.name): field.name for field in fields(cls)}
        found: dict[str, int | bool] = {}
        for variable, value in values.items():
            if variable in names:
                found[names[variable]] = _parse(variable, value, names[variable])
            elif variable.startswith(_PREFIX):
                near = difflib.get_close_matches(variable, names, n=1, cutoff=0.0)
                raise SettingsError(
                    f"{variable} is not a variable of the scheduler", f"did you mean {near[0]}?"
                )
        return cls(**found)  # type: ignore[arg-type]  # keys are field names, checked above

    @property
    def low_skip(self) -> int:
        """Steps paused after a low window."""
        if self.skip is not None:
            return self.skip
        return 32 if self.seed_batched else 2


def _variable(field_name: str) -> str:
    if field_name == "seed_batched":
        return "DS4_DSPARK_SEED_BATCH"
    return _PREFIX if field_name == "enabled" else f"{_PREFIX}_{field_name.upper()}"


def _parse(variable: str, value: str | int, field_name: str) -> int | bool:
    is_switch = field_name in {"enabled", "seed_batched"}
    low, wanted = (1, "1 or more") if field_name == "window" else (0, "0 or more")
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < low or (is_switch and number > 1):
        wanted = "0 or 1" if is_switch else wanted
        raise SettingsError(f"{variable} is {value!r}; it must be {wanted}")
    return bool(number) if is_switch else number


@dataclass(slots=True)
class _Window:
    """Sums over the attempts of one window; times in seconds."""

    cycles: int = 0
    accepted: int = 0
    no_draft: int = 0
    extra_s: float = 0.0
    saved_s: float = 0.0

    def add(self, outcome: RoundOutcome, *, no_draft: bool, plain_s: float) -> None:
        self.cycles += 1
        self.accepted += outcome.accepted
        self.no_draft += no_draft
        self.extra_s += outcome.draft_s + outcome.verify_s - plain_s
        self.saved_s += plain_s * outcome.accepted


class WindowScheduler(Scheduler):
    """ds4's policy. Counts start afresh with every reply.

    Raises:
        SettingsError: an option is out of range.
    """

    def __init__(
        self, spec: SpecOptions, *, block_size: int, costs: CostModel, knobs: WindowKnobs
    ) -> None:
        super().__init__(spec, block_size=block_size, costs=costs, threshold=DEFAULT_THRESHOLD)
        self.knobs = knobs
        self._begin()

    def _begin(self) -> None:
        self._window = _Window()
        self._long_window = _Window()
        self._skip = 0
        self._why_paused = ""
        self._lifetime_accepted = 0
        self._long_accept_seen = False
        self._enter(SpecState.ON, "on: a new reply begins")

    def _unpark(self) -> None:
        self._skip = 0

    def _decide(self, budget: int) -> Decision:
        if not self.knobs.enabled:
            return super()._decide(budget)
        if budget < self.knobs.tail_min_tokens:
            self._log.append(
                scheduler_line("tail skip", max=budget, min=self.knobs.tail_min_tokens)
            )
            return Decision(
                draft=False,
                reason=f"plain: {count(budget, 'token')} left, drafting needs "
                f"{self.knobs.tail_min_tokens}",
                kind=PlainKind.TAIL,
            )
        if self._skip > 0:
            self._skip -= 1
            self._log.append(scheduler_line("skip", remaining=self._skip))
            return Decision(
                draft=False,
                reason=f"parked: {self._why_paused}; {self._skip} more",
                kind=PlainKind.PAUSE,
            )
        self._enter(SpecState.ON, "on: the pause is over")
        return super()._decide(budget)

    def _note(self, outcome: RoundOutcome) -> None:
        no_draft = outcome.tested == 0 and not outcome.end_drafted
        self._lifetime_accepted += outcome.accepted
        self._long_accept_seen |= outcome.accepted > _LONG_ACCEPT
        plain_s = self.costs.plain_step_s or 0.0
        for window in (self._window, self._long_window):
            window.add(outcome, no_draft=no_draft, plain_s=plain_s)
        if not self.knobs.enabled:
            return
        if no_draft:
            self._pause_after_no_draft(outcome.confidence0)
        self._check_break_even()
        if self._window.cycles >= self.knobs.window:
            self._close_window()

    def _pause_after_no_draft(self, confidence0: float | None) -> None:
        knobs, pause = self.knobs, self.knobs.no_draft_skip
        is_low = (
            confidence0 is not None and confidence0 <= knobs.cold_low_confidence_milli / 1e3
        )
        if self._lifetime_accepted > 0 and not self._long_accept_seen:
            pause = max(pause, knobs.short_accept_no_draft_skip)
        elif self._lifetime_accepted == 0 and is_low:
            pause = max(pause, knobs.cold_low_confidence_skip)
        first = "" if confidence0 is None else f" (first confidence {confidence0:.2f})"
        if self._pause(pause, f"no draft passed {self.threshold:g}{first}"):
            self._log.append(
                scheduler_line(
                    "no-draft pause",
                    skip=self._skip,
                    accepted_total=self._lifetime_accepted,
                    long_accept=int(self._long_accept_seen),
                    confidence0="n/a" if confidence0 is None else f"{confidence0:.3f}",
                )
            )

    def _check_break_even(self) -> None:
        """Pause if a whole break-even window did not earn its extra time (off by default)."""
        window = self._long_window
        if not self.knobs.break_even_window or window.cycles < self.knobs.break_even_window:
            return
        self._long_window = _Window()
        if window.saved_s < window.extra_s and self._pause(
            max(self.knobs.low_skip, self.knobs.slow_skip),
            f"the last {window.cycles} rounds cost {window.extra_s * 1e3:.0f} ms "
            f"and saved {window.saved_s * 1e3:.0f} ms",
        ):
            self._log.append(
                scheduler_line(
                    "break-even pause",
                    cycles=window.cycles,
                    saved=_ms(window.saved_s),
                    extra=_ms(window.extra_s),
                    skip=self._skip,
                )
            )

    def _close_window(self) -> None:
        knobs, window = self.knobs, self._window
        self._window = _Window()
        average = window.accepted / window.cycles
        is_low = average < knobs.min_avg_milli / 1e3
        is_slow = _exceeds(
            window.extra_s * 1e3, window.accepted, knobs.max_ms_per_accept_milli / 1e3
        )
        is_unprofitable = _exceeds(
            window.extra_s, window.saved_s, knobs.max_extra_saved_ratio_milli / 1e3
        )
        if not (is_low or is_slow or is_unprofitable):
            return
        pause = knobs.low_skip
        if is_slow or is_unprofitable or 2 * window.no_draft >= window.cycles:
            pause = max(pause, knobs.slow_skip)
        if is_low:
            why = f"below {knobs.min_avg_milli / 1e3:g}"
        else:
            why = "too slow" if is_slow else "not worth its time"
        if self._pause(
            pause, f"{average:.2f} accepted a round over {window.cycles} rounds, {why}"
        ):
            self._log.append(
                scheduler_line(
                    "pause",
                    cycles=window.cycles,
                    accepted=window.accepted,
                    avg=f"{average:.3f}",
                    no_draft=window.no_draft,
                    extra_per_accept=_ms(window.extra_s / max(1, window.accepted)),
                    saved=_ms(window.saved_s),
                    extra=_ms(window.extra_s),
                    skip=self._skip,
                )
            )

    def _pause(self, pause: int, why: str) -> bool:
        """Pause unless a longer one runs or the user keeps it on; say whether."""
        if self._override or pause <= self._skip:
            return False
        self._skip, self._why_paused = pause, why
        self._enter(
            SpecState.PARKED,
            f"parked: {why}; next try after {count(pause, 'step')}",
            again=True,
        )
        return True


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _exceeds(cost: float, gain: float, limit: float) -> bool:
    """Say whether cost per gain is above a limit; a limit of 0 is off."""
    return limit > 0 and cost > 0 and cost > limit * gain
