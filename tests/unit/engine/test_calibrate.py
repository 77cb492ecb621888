"""The first measurements after loading, on a scripted clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ds4chat.engine.calibrate import calibrate
from ds4chat.engine.costs import CostModel
from ds4chat.engine.runner import Runner


@dataclass(slots=True, kw_only=True)
class Machine:
    """Stands for a runner: passes take time on its own clock, chosen ones take longer."""

    stalls: dict[int, float] = field(default_factory=dict)  # by number of the pass, from 1
    step_s: float = 0.02
    drafter: object = field(default_factory=object)
    recorded: object | None = None
    target: object = field(
        default_factory=lambda: SimpleNamespace(config=SimpleNamespace(n_vocab=10))
    )
    passes: list[int] = field(default_factory=list)
    now_s: float = 0.0

    def new_timeline(self) -> object:
        return object()

    def prefill(self, timeline: object, tokens: list[int]) -> list[int]:
        return tokens

    def evaluate_rows(self, timeline: object, tokens: list[int]) -> None:
        self.passes.append(len(tokens))
        self.now_s += self.step_s + 0.002 * (len(tokens) - 1)
        self.now_s += self.stalls.get(len(self.passes), 0.0)

    def propose(self, timeline: object, token: int) -> Any:
        self.now_s += 0.004
        return SimpleNamespace(draft_s=0.004)

    def costs(self, max_rows: int = 6) -> CostModel:
        costs = CostModel()
        calibrate(cast(Runner, self), costs, max_rows, clock=lambda: self.now_s)
        return costs


@pytest.mark.parametrize("stalled", range(1, 19))
def test_a_stall_in_one_pass_leaves_no_trace(stalled: int) -> None:
    costs = Machine(stalls={stalled: 0.3}).costs()
    assert costs.plain_step_s == pytest.approx(0.02)
    assert costs.pass_s(6) == pytest.approx(0.03)


def test_what_is_recorded_is_not_counted_and_then_timed() -> None:
    """Three passes through MLX and one that records, which take long, before each is timed."""
    recorded = SimpleNamespace(uses_before=lambda rows: 3)
    machine = Machine(recorded=recorded, stalls={4: 9.0, 9: 9.0})
    costs = machine.costs()
    assert machine.passes[:10] == [1] * 5 + [6] * 5
    assert len(machine.passes) == 6 * 5 + 6
    assert costs.plain_step_s == pytest.approx(0.02)
    assert costs.pass_s(6) == pytest.approx(0.03)


def test_a_slow_machine_gets_the_telling_rows_and_no_more_than_its_budget() -> None:
    machine = Machine(step_s=0.3)
    costs = machine.costs()
    assert machine.passes == [1, 1, 6, 6]
    assert costs.plain_step_s == pytest.approx(0.3)
    assert costs.pass_s(6) == pytest.approx(0.31)


def test_the_first_pass_of_each_row_count_only_warms_up() -> None:
    costs = Machine(stalls=dict.fromkeys((1, 3), 0.01)).costs(max_rows=2)
    assert costs.plain_step_s == pytest.approx(0.02)
    assert costs.draft_s == pytest.approx(0.004)
