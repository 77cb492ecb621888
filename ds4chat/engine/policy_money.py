"""Draft as far as measured time says that it pays, and park while it does not.

Before a round: *gain* = tokens a round makes over the tokens that plain decoding makes in a
round's time (the break-even). Both are running means over recent rounds, with times from the
cost model's medians, so that one stalled step does not park anything. Parked while the gain is
below one; then one probe round after 32 plain steps, doubling to 256 while probes lose.

After drafting: with S_k, the product of the first k confidences, k drafts are verified where
(1 + S_1 + ... + S_k) - r T(k + 1) is largest; r is the best current rate in tokens a second, so
r T is what the time would have made elsewhere (the draft is paid for by then). k = 0 is a plain
step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ds4chat.engine.costs import CostModel
from ds4chat.engine.policy_base import Decision, PlainKind, RoundOutcome, Scheduler, count
from ds4chat.protocol.types import SpecOptions, SpecState

FIRST_WAIT = 32
LAST_WAIT = 256
_MIN_ROUNDS = 4  # rounds before a verdict: fewer say more about chance than about the text
_KEEP = 7 / 8  # weight of the past after each round: a memory of about eight rounds


@dataclass(slots=True)
class _Gain:
    """Weighted sums over recent rounds."""

    n: int = 0  # rounds, unweighted
    rounds: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.n += 1
        self.rounds = self.rounds * _KEEP + 1
        self.tokens = self.tokens * _KEEP + tokens
        self.seconds = self.seconds * _KEEP + seconds

    @property
    def rate(self) -> float:
        """Tokens a second; 0 before the first round."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def is_losing(self, plain_s: float) -> bool:
        return self.tokens * plain_s < self.seconds

    def words(self, plain_s: float) -> str:
        made, needed = self.tokens / self.rounds, self.seconds / self.rounds / plain_s
        return f"{made:.1f} tokens a round, break-even is {needed:.1f}"


class MoneyScheduler(Scheduler):
    """The default policy. What it measured stays from reply to reply.

    Raises:
        SettingsError: an option is out of range.
    """

    def __init__(self, spec: SpecOptions, *, block_size: int, costs: CostModel) -> None:
        super().__init__(spec, block_size=block_size, costs=costs, threshold=0.0)
        self._gain = _Gain()
        self._wait = FIRST_WAIT  # plain steps before the next probe, when parked
        self._n_waited = 0
        self._is_parked = False

    def note_plain(self, step_s: float) -> None:
        """Take in a plain step; parked, it counts towards the next probe."""
        super().note_plain(step_s)
        self._n_waited += self._is_parked

    def _begin(self) -> None:
        """A new reply may be easier to draft: if parked, probe at once, then wait 32 again."""
        self._wait, self._n_waited = FIRST_WAIT, FIRST_WAIT
        if self._is_parked:
            self._enter(SpecState.PARKED, "parked: a new reply begins, one try comes first")

    def _unpark(self) -> None:
        self._is_parked = False
        self._gain = _Gain()

    def _decide(self, budget: int) -> Decision:
        plain_s = self.costs.plain_step_s
        n_wanted = self.costs.n_plain_wanted
        if plain_s is None or n_wanted:
            return Decision(
                draft=False,
                reason=f"measuring: {count(n_wanted, 'plain step')}",
                kind=PlainKind.MEASURE,
            )
        if self._is_parked and self._n_waited < self._wait:
            left = self._wait - self._n_waited
            return Decision(
                draft=False,
                reason=f"parked: {self._gain.words(plain_s)}; "
                f"next try after {count(left, 'step')}",
                kind=PlainKind.PAUSE,
            )
        if self._room < self.cap and not self._can_pay(plain_s):
            return Decision(
                draft=False,
                reason=f"plain: room for {count(self._room, 'draft')}, "
                "less than a round must win",
                kind=PlainKind.NO_ROOM,
            )
        if self._is_parked:
            return Decision(draft=True, reason=f"trying one round after {self._n_waited} steps")
        return super()._decide(budget)

    def _can_pay(self, plain_s: float) -> bool:
        """Say whether a fully accepted proposal within the room would beat plain decoding."""
        draft_s = self.costs.draft_s
        return any(
            (k + 1) * plain_s > draft_s + (self.costs.pass_s(k + 1) or 0.0)
            for k in range(1, self._room + 1)
        )

    def _choose_len(self, confidences: list[float], *, cut: bool) -> tuple[int, str]:
        plain_s = self.costs.plain_step_s
        if not confidences or plain_s is None:
            return super()._choose_len(confidences, cut=cut)
        rate = max(1 / plain_s, 0.0 if self._is_parked else self._gain.rate)
        expected, survival, best_expected = 1.0, 1.0, 1.0
        best_k, best_value = 0, -math.inf if self._override else 1 - rate * plain_s
        for k, confidence in enumerate(confidences, start=1):
            survival *= min(max(confidence, 0.0), 1.0)
            expected += survival
            value = expected - rate * (self.costs.pass_s(k + 1) or 0.0)
            if value > best_value:
                best_k, best_value, best_expected = k, value, expected
        return best_k, self._why_len(best_k, best_expected, confidences)

    def _why_len(self, k: int, expected: float, confidences: list[float]) -> str:
        if k == 0:
            return f"plain: first confidence {confidences[0]:.2f}, no draft pays its row"
        cost_s = self.costs.pass_s(k + 1) or 0.0
        return (
            f"{k} of {count(len(confidences), 'draft')}: {expected:.1f} tokens expected "
            f"for {cost_s * 1e3:.1f} ms"
        )

    def _note(self, outcome: RoundOutcome) -> None:
        plain_s = self.costs.plain_step_s
        tokens = outcome.accepted + 1
        seconds = self.costs.draft_s + (self.costs.pass_s(outcome.tested + 1) or 0.0)
        if self._is_parked:
            self._gain = _Gain()
        self._gain.add(tokens, seconds)
        if plain_s is None:
            return
        if self._is_parked:
            self._judge_probe(plain_s)
        elif self._gain.n >= _MIN_ROUNDS and self._gain.is_losing(plain_s):
            self._park(FIRST_WAIT, plain_s)

    def _judge_probe(self, plain_s: float) -> None:
        if self._gain.is_losing(plain_s):
            self._park(min(2 * self._wait, LAST_WAIT), plain_s)
            return
        self._is_parked = False
        self._enter(SpecState.ON, f"on again: the try made {self._gain.words(plain_s)}")

    def _park(self, wait: int, plain_s: float) -> None:
        if self._override:
            return
        was_parked, self._is_parked = self._is_parked, True
        self._wait, self._n_waited = wait, 0
        still = "still parked" if was_parked else "parked"
        self._enter(
            SpecState.PARKED,
            f"{still}: {self._gain.words(plain_s)}; next try after {wait} steps",
            again=True,
        )
