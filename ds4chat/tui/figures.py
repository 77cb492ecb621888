"""The running figures behind the speculation panel. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from ds4chat.protocol.events import PlainStep, PolicyChanged, RoundVerified
from ds4chat.protocol.types import Policy, SpecOptions, SpecState, Usage

N_RECENT = 40  # blocks of the sparkline
N_TIMES = 64  # measurements behind a median
N_BINS = 5  # of confidence, each 0.2 wide


@dataclass(slots=True, kw_only=True)
class Counts:
    """Sums over rounds."""

    n_rounds: int = 0
    sum_accept_len: float = 0.0
    by_position: list[tuple[int, int]] = field(default_factory=list)
    histogram: list[int] = field(default_factory=list)

    def add_round(self, n_accepted: int, n_tested: int) -> None:
        """Count a round that runs now."""
        self.n_rounds += 1
        self.sum_accept_len += n_accepted + 1
        hits = range(min(n_accepted + 1, n_tested))
        self._add(
            ((int(i < n_accepted), 1) for i in hits),
            (int(i == n_accepted) for i in range(n_accepted + 1)),
        )

    def add_usage(self, usage: Usage) -> None:
        """Count a finished turn."""
        self.n_rounds += usage.n_rounds
        self.sum_accept_len += (usage.accept_len or 0.0) * usage.n_rounds
        self._add(usage.by_position, usage.histogram)

    def joined(self, other: Counts) -> Counts:
        """Both together."""
        both = Counts(
            n_rounds=self.n_rounds + other.n_rounds,
            sum_accept_len=self.sum_accept_len + other.sum_accept_len,
            by_position=list(self.by_position),
            histogram=list(self.histogram),
        )
        both._add(other.by_position, other.histogram)
        return both

    def _add(self, positions: Iterable[tuple[int, int]], histogram: Iterable[int]) -> None:
        for i, (accepted, tested) in enumerate(positions):
            if i == len(self.by_position):
                self.by_position.append((0, 0))
            old = self.by_position[i]
            self.by_position[i] = (old[0] + accepted, old[1] + tested)
        for i, n in enumerate(histogram):
            if i == len(self.histogram):
                self.histogram.append(0)
            self.histogram[i] += n


@dataclass(slots=True, kw_only=True)
class Figures:
    """What the panel shows, over one chat.

    A finished turn's own `Usage` replaces what was counted while it ran.
    """

    block_size: int = 0
    state: SpecState = SpecState.ON
    reason: str = ""
    last: RoundVerified | None = None
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=N_RECENT))
    bins: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * N_BINS)
    tps: float | None = None
    plain_step_s: float | None = None
    _done: Counts = field(default_factory=Counts)
    _live: Counts = field(default_factory=Counts)
    _saved_s: float | None = None
    _decode_s: float = 0.0
    _draft_s: deque[float] = field(default_factory=lambda: deque(maxlen=N_TIMES))
    _verify_s: deque[float] = field(default_factory=lambda: deque(maxlen=N_TIMES))
    _plain_s: deque[float] = field(default_factory=lambda: deque(maxlen=N_TIMES))

    def add_round(self, event: RoundVerified) -> None:
        """Take in one round."""
        n_tested = len(event.proposal_ids)
        self.last = event
        self.recent.append(event.n_accepted)
        self._live.add_round(event.n_accepted, n_tested)
        self._draft_s.append(event.draft_s)
        self._verify_s.append(event.verify_s)
        n_known = min(event.n_accepted + 1, n_tested)
        for position, confidence in enumerate(event.confidences[:n_known]):
            at = min(N_BINS - 1, max(0, int(confidence * N_BINS)))
            n, n_right = self.bins[at]
            self.bins[at] = (n + 1, n_right + (position < event.n_accepted))

    def add_plain(self, event: PlainStep) -> None:
        """Take in one plain step."""
        self._plain_s.append(event.step_s)

    def set_policy(self, event: PolicyChanged) -> None:
        """Speculation changed its state."""
        self.state, self.reason = event.state, event.reason

    def ask(self, spec: SpecOptions, *, keep_on: bool = False) -> None:
        """Speculate so from the next reply on; `keep_on`: without parking in that one."""
        if self.state is SpecState.UNAVAILABLE:
            return
        self.state, self.reason = SpecState.ON if spec.enabled else SpecState.OFF, ""
        if keep_on:
            self.reason = "on: you keep it on for the next reply"
        elif spec.enabled and spec.policy is Policy.FIXED:
            self.reason = "on: at all times, as you asked"

    def finish_turn(self, usage: Usage | None) -> None:
        """Replace the live counts of a turn by its own account, if there is one."""
        if usage is None:
            self._done = self.counts
        else:
            self._done.add_usage(usage)
            self.plain_step_s = usage.plain_step_s
            if usage.saved_s is not None:
                self._saved_s = (self._saved_s or 0.0) + usage.saved_s
                self._decode_s += usage.decode_s
        self._live = Counts()

    @property
    def counts(self) -> Counts:
        """Sums over the whole chat, the running turn included."""
        return self._done.joined(self._live)

    @property
    def accept_len(self) -> float | None:
        """Mean of accepted + 1 over rounds; None before the first."""
        counts = self.counts
        return counts.sum_accept_len / counts.n_rounds if counts.n_rounds else None

    @property
    def saved_s(self) -> float | None:
        """Seconds saved by the finished turns; None when unknown."""
        return self._saved_s

    @property
    def ratio(self) -> float | None:
        """Plain over real decode time of the finished turns; None when unknown."""
        if self._saved_s is None or self._decode_s <= 0:
            return None
        return (self._saved_s + self._decode_s) / self._decode_s

    @property
    def draft_s(self) -> float | None:
        """Median seconds of drafting a round."""
        return _middle(self._draft_s)

    @property
    def verify_s(self) -> float | None:
        """Median seconds of verifying a round."""
        return _middle(self._verify_s)

    @property
    def plain_s(self) -> float | None:
        """Seconds of a plain step: the engine's figure, else the median of those seen."""
        return self.plain_step_s if self.plain_step_s is not None else _middle(self._plain_s)


def _middle(values: deque[float]) -> float | None:
    return median(values) if values else None
