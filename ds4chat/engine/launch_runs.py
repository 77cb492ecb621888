"""How many device launches one step is made of, by part of the layer.

On a GPU the number of launches is what a step costs beyond its memory traffic. The graph of a
whole step is counted, and those of its parts; what is left over is the hyper-connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import mlx.core as mx

from ds4chat.engine.bench_runs import Clock, Sample, some_ids
from ds4chat.engine.engine import Engine
from ds4chat.engine.graph_count import count, lazy_step
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.model.layers.feed_forward import feed_forward

ATTENTION, EXPERTS, OUTPUT = "attention", "experts", "output matrix"
REST = "hyper-connections, norms, embedding"
WHOLE, DRAFT = "whole step", "draft of a block"

Lazy = Callable[[], list[mx.array]]


def launches(
    engine: Engine, context: int, repeat: int, clock: Clock = time.perf_counter
) -> Iterator[Sample]:
    """Nodes, launches and time of one plain step behind `context` tokens, part by part.

    The time of a part is that of all its layers, built and evaluated with their inputs ready,
    so the parts need not add up to the step.
    """
    runner = Runner(engine.runner.target, engine.runner.drafter, is_row_exact=True)
    timeline = runner.new_timeline()
    ids = some_ids(engine, context + 1)
    for _ in runner.prefill(timeline, ids[:context]):
        pass
    for run in range(repeat + 1):
        for case, lazy in _cases(runner, timeline, ids[context]).items():
            start = clock()
            outputs = lazy()
            built_s = clock() - start
            counted = count(outputs)
            start = clock()
            mx.eval(outputs)  # sync: its time is what this is for
            facts = {"nodes": counted.nodes, "launches": counted.launches, "built_s": built_s}
            seconds = built_s + clock() - start
            yield Sample(case=case, run=run, n_units=1, seconds=seconds, facts=facts)


def _cases(runner: Runner, timeline: Timeline, token: int) -> dict[str, Lazy]:
    target = runner.target
    layers = range(target.config.n_layers)
    plan = target.plan(timeline.log, [token], timeline.log.n, row_exact=True)
    row = mx.random.normal((1, target.config.block.dim), key=mx.random.key(1))
    row = row.astype(target.dtype)
    mx.eval(row)

    def attention() -> list[mx.array]:
        log = timeline.log
        return [target.attend(row, i, log, plan) for i in layers] + log.arrays()

    def experts() -> list[mx.array]:
        branches = [target.weights.blocks[i].ffn for i in layers]
        return [feed_forward(row, plan.ids, w, target.config.block) for w in branches]

    cases: dict[str, Lazy] = {
        WHOLE: lambda: lazy_step(runner, timeline, token),
        ATTENTION: attention,
        EXPERTS: experts,
        OUTPUT: lambda: [target.weights.output(row)],
    }
    if runner.drafter is not None:
        cases[DRAFT] = lambda: _draft(runner, timeline, token)
    return cases


def _draft(runner: Runner, timeline: Timeline, token: int) -> list[mx.array]:
    assert runner.drafter is not None
    assert timeline.rings is not None
    lazy = runner.drafter.propose(timeline.rings, token, timeline.log.n)
    return [lazy.told]
