"""The graph of a step, counted before it is evaluated."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from ds4chat.engine.runner import Runner, Timeline

_NODE = re.compile(r'\[label ="([^"]*)", shape=rectangle\]')
_VIEWS = frozenset(
    (
        *("AsStrided", "Broadcast", "BroadcastAxes", "Depends", "ExpandDims", "Flatten"),
        *("Reshape", "Slice", "Split", "Squeeze", "StopGradient", "Transpose", "Unflatten"),
        "View",
    )
)
"""Nodes that as a rule only look at their input differently and launch nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Nodes of a graph; `launches` leaves out those that are views."""

    nodes: int
    launches: int
    kinds: Counter[str] = field(default_factory=Counter)


def count(outputs: Sequence[mx.array]) -> Count:
    """Count what evaluating `outputs` would compute."""
    text = io.StringIO()
    mx.export_to_dot(text, *outputs)
    kinds = Counter(_NODE.findall(text.getvalue()))
    views = sum(n for kind, n in kinds.items() if kind in _VIEWS)
    nodes = kinds.total()
    return Count(nodes=nodes, launches=nodes - views, kinds=kinds)


def step_count(runner: Runner, timeline: Timeline, token: int) -> Count:
    """Count a plain step of one token; nothing of it is evaluated."""
    before = runner.new_timeline()
    before.restore(timeline.log.n, timeline.logical_state())
    return count(lazy_step(runner, before, token))


def lazy_step(runner: Runner, timeline: Timeline, token: int) -> list[mx.array]:
    """All that a plain step evaluates; `timeline` then holds lazy arrays."""
    plan = runner.target.plan(timeline.log, [token], timeline.log.n, row_exact=True)
    result = runner.target.evaluate(timeline.log, plan)
    if runner.drafter is not None and timeline.rings is not None:
        assert result.capture is not None
        runner.drafter.append(timeline.rings, result.capture, plan)
    return [result.logits, *timeline.arrays()]
