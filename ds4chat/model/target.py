"""The target model: rows of tokens in, logits and captures out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from ds4chat.model.config import TargetConfig
from ds4chat.model.kv import KVLog, LayerCache
from ds4chat.model.layers.attention import Attention
from ds4chat.model.layers.feed_forward import feed_forward
from ds4chat.model.plan import Plan, Planner
from ds4chat.model.weights import BlockWeights, TargetWeights
from ds4chat.ops.hyper import HyperWeights
from ds4chat.ops.hyper_kernels import Flow, begin, collapse, read, write


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """Lazy results of a pass of L rows.

    `logits` `(L, V)` or `(1, V)` float32; `capture` `(L, layers * D)` float32: the stream means
    after the captured layers, () without a draft.
    """

    logits: mx.array
    capture: mx.array | None


def embed(table: mx.array, ids: mx.array, n_streams: int) -> mx.array:
    """Residual streams `(L, m, D)` float32: the embedding, copied to every stream."""
    rows = table[ids].astype(mx.float32)
    return mx.broadcast_to(rows[:, None, :], (rows.shape[0], n_streams, rows.shape[1]))


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
        self.planner = Planner(config)
        self._attention = Attention(config, kv_fp8=kv_fp8)
        self._capture_layers = tuple(capture_layers)

    def new_log(self) -> KVLog:
        """An empty log for this model."""
        return KVLog(self.config, self.dtype)

    def plan(self, log: KVLog, ids: Sequence[int], n: int, *, row_exact: bool) -> Plan:
        """Plan a pass over `ids` at positions n .. and make room for its rows.

        Args:
            log: the timeline.
            ids: 1..8 tokens with `row_exact`, any number without.
            n: position of the first row.
            row_exact: row i has the same bits for any number of rows. Else a prefill chunk.
        """
        log.reserve(n + len(ids))
        return self.planner.plan(ids, n, row_exact=row_exact)

    def evaluate(self, log: KVLog, plan: Plan, *, last_only: bool = False) -> PassResult:
        """Append the rows of a plan; all results are lazy, and so are the log's new arrays.

        Does not commit: the caller evaluates everything, then sets `log.n`. `last_only`
        computes the logits of the last row only.
        """
        w, captured = self.weights, dict[int, mx.array]()
        flow = begin(embed(w.embed, plan.ids, self.config.block.n_streams), w.blocks[0].hc_attn)
        readers = [*(block.hc_attn for block in w.blocks[1:]), w.head.hc]
        for i, (block, reader) in enumerate(zip(w.blocks, readers, strict=True)):
            flow = self._block(flow, block, reader, log.layers[i], plan)
            if i in self._capture_layers:
                captured[i] = flow.streams.mean(axis=1)
        hidden = collapse(flow.last() if last_only else flow, w.head.hc, w.head.norm)
        logits = w.output(hidden).astype(mx.float32)
        capture = None
        if captured:
            capture = mx.concatenate([captured[i] for i in self._capture_layers], axis=-1)
        return PassResult(logits=logits, capture=capture)

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
