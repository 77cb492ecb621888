"""Times passes and drafts on a scratch timeline, so that the policy starts with real costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ds4chat.engine.costs import CostModel
from ds4chat.engine.runner import Runner, Timeline

_BUDGET_S = 1.0
_N_CONTEXT = 32

Clock = Callable[[], float]


class _Scratch:
    """Tries passes over a timeline; of several times the shortest one counts."""

    def __init__(self, runner: Runner, timeline: Timeline, costs: CostModel) -> None:
        self._runner = runner
        self._timeline = timeline
        self._costs = costs
        self._token = runner.target.config.n_vocab // 2
        self._pass_s: dict[int, float] = {}
        self._draft_s = math.inf

    def read_context(self) -> None:
        """Give the passes something to look back at."""
        for _ in self._runner.prefill(self._timeline, [self._token] * _N_CONTEXT):
            pass

    def warm_up(self, rows: int) -> None:
        """Let kernels be compiled, memory be taken, and passes be recorded; not timed."""
        recorded = self._runner.recorded
        for _ in range(1 if recorded is None else 1 + recorded.uses_before(rows)):
            self._runner.evaluate_rows(self._timeline, [self._token] * rows)
            if self._drafts_too(rows):
                self._runner.propose(self._timeline, self._token)

    def measure(self, rows: int, clock: Clock) -> None:
        """Time one pass; with one row the draft too."""
        before = clock()
        self._runner.evaluate_rows(self._timeline, [self._token] * rows)
        self._pass_s[rows] = min(self._pass_s.get(rows, math.inf), clock() - before)
        self._costs.set_measured(rows, self._pass_s[rows])
        if self._drafts_too(rows):
            made = self._runner.propose(self._timeline, self._token)
            self._draft_s = min(self._draft_s, made.draft_s)
            self._costs.set_draft(self._draft_s)

    def _drafts_too(self, rows: int) -> bool:
        return rows == 1 and self._runner.drafter is not None


def calibrate(
    runner: Runner, costs: CostModel, max_rows: int, clock: Clock = time.perf_counter
) -> None:
    """Measure T(1..max_rows) and the draft, each once warm, then all of them once more.

    The faster try counts: a stall only ever adds, and one that lasts is over when the second
    tries come. Takes at most about a second: what is not reached is interpolated and learned
    later. On a GPU the second does not count what is compiled and recorded once.
    """
    scratch, order = _Scratch(runner, runner.new_timeline(), costs), _order(max_rows)
    scratch.read_context()
    spent = 0.0
    for at, rows in enumerate(order + order):
        start = clock()
        if at < len(order):
            scratch.warm_up(rows)
        if runner.recorded is not None:
            start = clock()
        scratch.measure(rows, clock)
        spent += clock() - start
        if spent > _BUDGET_S:
            return


def _order(max_rows: int) -> list[int]:
    """Row counts, the telling ones first: one row, the whole block, then between."""
    ends = [1, max_rows] if max_rows > 1 else [1]
    return ends + list(range(2, max_rows))
