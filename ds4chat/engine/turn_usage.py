"""The figures of one reply, counted from round reports.

Pure: durations are given, no clock is read. How each figure is defined: `protocol.types.Usage`.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from ds4chat.engine.api import RoundReport
from ds4chat.protocol.types import Usage


class PlainRate:
    """The best plain step of this process: the lowest running median of its step times."""

    def __init__(self, window: int = 16) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._best: float | None = None

    def add(self, step_s: float) -> None:
        """Count one plain step of `step_s` seconds."""
        self._recent.append(step_s)
        if len(self._recent) >= min(3, self._recent.maxlen or 3):
            now = median(self._recent)
            self._best = now if self._best is None else min(self._best, now)

    @property
    def step_s(self) -> float | None:
        """Seconds of a plain step; None until three were timed."""
        return self._best


class UsageMeter:
    """Counts one turn. `decode_s`, `prefill_s` and `first_token_s` are set by the turn."""

    def __init__(self, *, n_prompt: int, block_size: int, plain_rate: PlainRate) -> None:
        self.n_prompt = n_prompt
        self.n_cached = 0
        self.n_tokens = 0
        self.n_thinking = 0
        self.prefill_s = 0.0
        self.first_token_s = 0.0
        self.decode_s = 0.0
        self._plain_rate = plain_rate
        self._n_plain_steps = 0
        self._n_drafted = 0
        self._draft_s = 0.0
        self._verify_s = 0.0
        self._plain_s = 0.0
        self._has_end = False
        self._last_round_ended = False
        self._accepted: list[int] = [0] * block_size  # by draft position
        self._tested: list[int] = [0] * block_size
        self._histogram: list[int] = [0] * (block_size + 1 if block_size else 0)

    def count(self, report: RoundReport) -> None:
        """Add one round or plain step."""
        if report.round == 0:
            self._n_plain_steps += 1
            self._plain_s += report.verify_s
            self._draft_s += report.draft_s
            self._plain_rate.add(report.verify_s)
            self._last_round_ended = False
            return
        self._n_drafted += len(report.proposal)
        self._draft_s += report.draft_s
        self._verify_s += report.verify_s
        self._histogram[report.n_accepted] += 1
        for place in range(min(len(report.proposal), report.n_accepted + 1)):
            self._tested[place] += 1
            self._accepted[place] += place < report.n_accepted
        self._last_round_ended = True

    def count_forced(self) -> None:
        """Note a token that the program put there: it is in no rate."""
        self._last_round_ended = False

    def end_by_stop_token(self) -> None:
        """Note that the target's next token is an end id.

        If a round came last, that end id is its fallback or bonus, and is not counted.
        """
        self._has_end = self._last_round_ended

    def tps(self) -> float:
        """Generated tokens a second of decode time; 0 before the first."""
        return self.n_tokens / self.decode_s if self.decode_s > 0 else 0.0

    def usage(self, *, kv_bytes: int, n_context: int) -> Usage:
        """The figures so far."""
        n_rounds = sum(self._histogram)
        n_accepted = sum(self._accepted)
        plain_step_s = self._plain_rate.step_s
        return Usage(
            n_prompt=self.n_prompt,
            n_cached=self.n_cached,
            n_tokens=self.n_tokens,
            n_thinking=self.n_thinking,
            n_rounds=n_rounds,
            n_plain_steps=self._n_plain_steps,
            n_drafted=self._n_drafted,
            n_accepted=n_accepted,
            prefill_s=self.prefill_s,
            first_token_s=self.first_token_s,
            decode_s=self.decode_s,
            draft_s=self._draft_s,
            verify_s=self._verify_s,
            plain_s=self._plain_s,
            plain_step_s=plain_step_s,
            saved_s=(
                None if plain_step_s is None else self.n_tokens * plain_step_s - self.decode_s
            ),
            accept_len=(n_rounds + n_accepted - self._has_end) / n_rounds if n_rounds else None,
            by_position=tuple(zip(self._accepted, self._tested, strict=True)),
            histogram=tuple(self._histogram),
            kv_bytes=kv_bytes,
            n_context=n_context,
        )
