"""The target model: rows of tokens in, logits and captures out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from ds4chat.model.config import TargetConfig
from ds4chat.model.decode_plan import DecodePlanner, Layout
from ds4chat.model.kv import KVLog, LayerCache
from ds4chat.model.layers.attention import Attention
from ds4chat.model.layers.feed_forward import feed_forward
from ds4chat.model.plan import Plan, Planner
from ds4chat.model.replayed import ReplayedBlocks
from ds4chat.model.weights import BlockWeights, TargetWeights
from ds4chat.ops.dispatch import current
from ds4chat.ops.edge_kernels import capture_means, embed_rows
from ds4chat.ops.hyper import HyperWeights
from ds4chat.ops.hyper_kernels import Flow, begin, collapse, read, unwritten, write
from ds4chat.ops.replay import Run, emptied

EARLY_LAYERS = (1, 5, 13)
"""Layers behind which a decode pass is handed to the device: what it has then lasts it until
the next ones are there, if they take longer than their launches do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """Lazy results of a pass of L rows.

    `logits` `(L, V)` or `(1, V)` float32; `capture` `(L, layers * D)` in the type of
    activations: the stream means after the captured layers, None without a draft.
    """

    logits: mx.array
    capture: mx.array | None


def embed(table: mx.array, ids: mx.array, n_streams: int) -> mx.array:
    """Residual streams `(L, m, D)` float32: the embedding, copied to every stream."""
    made = embed_rows(table, ids, n_streams)
    if made is not None:
        return made
    rows = table[ids].astype(mx.float32)
    return mx.broadcast_to(rows[:, None, :], (rows.shape[0], n_streams, rows.shape[1]))


def capture(streams: Sequence[mx.array], dtype: mx.Dtype = mx.float32) -> mx.array:
    """Means `(L, n * D)` in `dtype` of the streams `(L, m, D)` behind n layers, n not 0."""
    made = capture_means(streams, dtype)
    if made is not None:
        return made
    return mx.concatenate([layer.mean(axis=1) for layer in streams], axis=-1).astype(dtype)


class Target:
    """Evaluates rows at any position of a log; holds no state of its own."""

    def __init__(
        self,
        config: TargetConfig,
        weights: TargetWeights,
        *,
        dtype: mx.Dtype,
        kv_fp8: bool,
        capture_layers: Sequence[int] = (),
    ) -> None:
        self.config = config
        self.weights = weights
        self.dtype = dtype
        self._planner = Planner(config)
        self._steps = DecodePlanner(config, self._planner.plain, self._planner.compressed)
        self._attention = Attention(config, kv_fp8=kv_fp8)
        self._capture_layers = tuple(capture_layers)
        readers = [*(block.hc_attn for block in weights.blocks[1:]), weights.head.hc]
        self._parts = list(zip(weights.blocks, readers, strict=True))
        self._replayed = ReplayedBlocks(self._block, self._parts)

    def new_log(self) -> KVLog:
        """An empty log for this model."""
        return KVLog(self.config, self.dtype)

    def plan(
        self,
        log: KVLog,
        ids: Sequence[int],
        n: int,
        *,
        row_exact: bool,
        ahead: Plan | None = None,
    ) -> Plan:
        """Plan a pass over `ids` at positions n .. and make room for its rows.

        Args:
            log: the timeline.
            ids: 1..8 tokens with `row_exact`, any number without.
            n: position of the first row.
            row_exact: row i has the same bits for any number of rows. Else a prefill chunk.
            ahead: used instead of a new plan if it is one of this pass.
        """
        log.reserve(n + len(ids))
        if not row_exact:
            return self._planner.plan(ids, n)
        if ahead is not None and (ahead.n, ahead.length) == (n, len(ids)):
            return self._steps.with_ids(ahead, ids)
        return self._steps.plan(ids, n)

    def plan_ahead(self, n: int) -> Plan:
        """Plan a step at position `n` whose token is not known yet, for `plan`."""
        return self._steps.ahead(n)

    def kept_layout(self, log: KVLog, n: int, length: int) -> Layout | None:
        """See `DecodePlanner.kept`; makes room for the rows."""
        layout = self._steps.kept(n, length)
        if layout is not None:
            log.reserve(n + length, is_kept=True)
        return layout

    def kept_ahead(self, n: int) -> None:
        """Fill the buffer of a step at position `n`, for `kept_layout`."""
        self._steps.kept(n, 1)

    def kept_plan(self, layout: Layout, n: int) -> tuple[Plan, mx.array]:
        """See `DecodePlanner.kept_plan`."""
        return self._steps.kept_plan(layout, n)

    def constants(self, length: int) -> list[mx.array]:
        """All arrays that passes of `length` rows read and that stay."""
        found: list[mx.array] = []
        emptied(self.weights, found)  # readers are parts of blocks
        streams = (length, self.config.block.n_streams, int(self.weights.embed.shape[1]))
        return [*found, *unwritten(*streams).arrays()]

    def evaluate(
        self, log: KVLog, plan: Plan, *, last_only: bool = False, begins: bool = False
    ) -> PassResult:
        """Append the rows of a plan; all results are lazy, and so are the log's new arrays.

        Does not commit: the caller evaluates everything, then sets `log.n`. `last_only`
        computes the logits of the last row only. If a decode pass `begins`, the device works on
        its first layers while the graph of the others is built.
        """
        log.n_moves += 1
        captured = dict[int, mx.array]()
        is_replayed = not plan.is_prefill and current().is_replayed
        plans = self._replayed.plans(plan) if is_replayed else {}
        flow = Flow.of(self._through(("begin",), self._begin, [plan.ids], is_replayed))
        for i, (cache, (block, reader)) in enumerate(zip(log.layers, self._parts, strict=True)):
            if is_replayed:
                flow = self._replayed(i, flow, cache, plans)
                if begins and i in EARLY_LAYERS:
                    mx.async_eval(flow.arrays())  # type: ignore[no-untyped-call]
            else:
                flow = self._block(flow, block, reader, cache, plan)
            if plan.is_prefill and not current().is_reference:
                # a layer at a time: the device works meanwhile, and what one layer of a
                # prompt leaves behind is freed before the next
                mx.async_eval(flow.arrays(), cache.arrays())  # type: ignore[no-untyped-call]
            if i in self._capture_layers:
                captured[i] = flow.streams
        seen = [captured[i] for i in self._capture_layers]
        last = flow.last() if last_only else flow
        key = ("end", len(last.arrays()))
        logits, *capture = self._through(key, self._end, last.arrays() + seen, is_replayed)
        return PassResult(logits=logits, capture=capture[0] if capture else None)

    def _through(
        self, key: tuple[str | int, ...], run: Run, arrays: list[mx.array], is_replayed: bool
    ) -> list[mx.array]:
        if not is_replayed:
            return run(arrays)
        shapes = tuple(a.shape for a in arrays)
        return self._replayed.replay((*key, shapes), lambda: run, [], arrays)

    def _begin(self, arrays: list[mx.array]) -> list[mx.array]:
        """The ids `(L,)` to a flow."""
        w = self.weights
        streams = embed(w.embed, arrays[0], self.config.block.n_streams)
        return begin(streams, w.blocks[0].hc_attn).arrays()

    def _end(self, arrays: list[mx.array]) -> list[mx.array]:
        """The last flow and the captured streams to logits and, of these, the capture."""
        w = self.weights.head
        n_flow = len(arrays) - len(self._capture_layers)
        hidden = collapse(Flow.of(arrays[:n_flow]), w.hc, w.norm)
        logits = self.weights.output(hidden).astype(mx.float32)
        if not self._capture_layers:
            return [logits]
        return [logits, capture(arrays[n_flow:], self.dtype)]

    def attend(self, x: mx.array, layer: int, log: KVLog, plan: Plan) -> mx.array:
        """One layer's attention branch alone, for tools: normed rows `(L, D)` to `(L, D)`."""
        return self._attention(x, self.weights.blocks[layer].attn, log.layers[layer], plan)

    def _block(
        self,
        flow: Flow,
        w: BlockWeights,
        reader: HyperWeights,
        cache: LayerCache,
        plan: Plan,
    ) -> Flow:
        """One layer; `reader` reads the streams after it."""
        x, mix = read(flow, w.hc_attn, w.attn.norm, self.dtype)
        flow = write(flow, mix, self._attention(x, w.attn, cache, plan), w.hc_ffn)
        x, mix = read(flow, w.hc_ffn, w.ffn.norm, self.dtype)
        return write(flow, mix, feed_forward(x, plan.ids, w.ffn, self.config.block), reader)
