"""Times passes and drafts on a scratch timeline, so that the policy starts with real costs."""

from __future__ import annotations

import time
from collections.abc import Callable

from ds4chat.engine.costs import CostModel
from ds4chat.engine.runner import Runner

_BUDGET_S = 1.0
_N_CONTEXT = 32


def calibrate(
    runner: Runner,
    costs: CostModel,
    max_rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Measure T(1..max_rows) and the draft, two tries each (the first also warms up).

    Takes at most about a second: what is not reached is interpolated and learned later.
    """
    start = clock()
    timeline = runner.new_timeline()
    token = runner.target.config.n_vocab // 2
    for _ in runner.prefill(timeline, [token] * _N_CONTEXT):
        pass
    for rows in _order(max_rows):
        for _ in range(2):
            before = clock()
            runner.evaluate_rows(timeline, [token] * rows)
            costs.set_measured(rows, clock() - before)
        if runner.drafter is not None and rows == 1:
            for _ in range(2):
                costs.set_draft(runner.propose(timeline, token).draft_s)
        if clock() - start > _BUDGET_S:
            return


def _order(max_rows: int) -> list[int]:
    """Row counts, the telling ones first: one row, the whole block, then between."""
    ends = [1, max_rows] if max_rows > 1 else [1]
    return ends + list(range(2, max_rows))
