"""The layers of a decode pass, each kind of layer traced once and replayed for all of them.

Weights, caches and the plan are arguments of a trace, so Flash with its 43 layers has a handful
of traces for each number of rows. `Target` asks for this where MLX runs on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import mlx.core as mx

from ds4chat.model.kv import LayerCache
from ds4chat.model.plan import Plan
from ds4chat.model.weights import BlockWeights
from ds4chat.ops.hyper import HyperWeights
from ds4chat.ops.hyper_kernels import Flow
from ds4chat.ops.replay import Replay, Run, emptied, filled

Block = Callable[[Flow, BlockWeights, HyperWeights, LayerCache, Plan], Flow]
"""A layer: the flow, its weights, who reads the streams next, its cache, the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A number for the form of a tree, and the tree's arrays."""

    number: int
    arrays: list[mx.array]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picks:
    """The number of a form, and where its arrays stand among a plan's parts."""

    number: int
    order: list[int]


class _Forms:
    """Numbers for forms: they are quick to compare, forms are not."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: list[Any] = []

    def of(self, tree: Any) -> _Form:
        arrays: list[mx.array] = []
        form = emptied(tree, arrays)
        number = self._numbers.get(form)
        if number is None:
            number = self._numbers[form] = len(self._known)
            self._known.append(form)
        return _Form(number=number, arrays=arrays)

    def __getitem__(self, number: int) -> Any:
        return self._known[number]


class ReplayedBlocks:
    """Layers by number.

    Args:
        block: evaluates a layer; depends on its arguments alone.
        parts: each layer's weights, and the weights that read the streams after it.
    """

    def __init__(
        self, block: Block, parts: Sequence[tuple[BlockWeights, HyperWeights]]
    ) -> None:
        self._block = block
        self._forms = _Forms()
        self._parts = [self._forms.of(part) for part in parts]
        self._picks = WeakKeyDictionary[Hashable, dict[int, _Picks]]()
        self.replay = Replay()

    def plans(self, plan: Plan) -> dict[int, _Form]:
        """What the layers of each ratio need of a pass; made once for `__call__`."""
        if plan.source is None:
            return {ratio: self._forms.of(plan.of_ratio(ratio)) for ratio in plan.by_ratio}
        picks, parts = self._picks.get(plan.source.layout), plan.source.parts
        if picks is None:
            picks = self._picks[plan.source.layout] = self._look(plan, plan.source.parts)
        return {
            ratio: _Form(number=p.number, arrays=[parts[i] for i in p.order])
            for ratio, p in picks.items()
        }

    def _look(self, plan: Plan, parts: list[mx.array]) -> dict[int, _Picks]:
        """Which parts of a layout's plans the layers of each ratio take, in which order."""
        numbers = {id(part): i for i, part in enumerate(parts)}
        made = {}
        for ratio in plan.by_ratio:
            form = self._forms.of(plan.of_ratio(ratio))
            order = [numbers[id(a)] for a in form.arrays]
            made[ratio] = _Picks(number=form.number, order=order)
        return made

    def __call__(self, i: int, flow: Flow, cache: LayerCache, plans: dict[int, _Form]) -> Flow:
        """Evaluate layer `i` (lazily); `cache` then holds its new arrays."""
        part, plan = self._parts[i], plans[cache.ratio]
        rows = cache.rows
        capacity = 0 if rows is None else rows.shape[0]
        key = (part.number, plan.number, cache.ratio, capacity, flow.partials is None)
        made = self.replay(
            key,
            lambda: self._run(part.number, plan, cache.ratio, len(flow.arrays())),
            flow.arrays() + cache.arrays(),
            plan.arrays + part.arrays,
        )
        n_flow = len(flow.arrays())
        cache.put(made[n_flow:])
        return Flow.of(made[:n_flow])

    def _run(self, part: int, plan: _Form, ratio: int, n_flow: int) -> Run:
        """The function to trace: flow and cache, plan and weights to flow and cache."""
        plan_form, part_form = self._forms[plan.number], self._forms[part]

        def run(arrays: list[mx.array]) -> list[mx.array]:
            rest = iter(arrays)
            flow = Flow.of([next(rest) for _ in range(n_flow)])
            cache = LayerCache.of(ratio, rest)
            at, (weights, reader) = filled(plan_form, rest), filled(part_form, rest)
            return self._block(flow, weights, reader, cache, at).arrays() + cache.arrays()

        return run
