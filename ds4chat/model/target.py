"""The target model: rows of tokens in, logits and captures out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from ds4chat.model.config import TargetConfig
from ds4chat.model.kv import KVLog
from ds4chat.model.layers.attention import Attention
from ds4chat.model.layers.feed_forward import feed_forward
from ds4chat.model.plan import Plan, Planner
from ds4chat.model.weights import BlockWeights, HeadWeights, TargetWeights
from ds4chat.ops.hyper import collapse_streams, read_streams, write_streams
from ds4chat.ops.linear import Linear
from ds4chat.ops.norms import rms_norm


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


def head_logits(streams: mx.array, head: HeadWeights, output: Linear, eps: float) -> mx.array:
    """`(L, m, D)` to `(L, V)` float32."""
    hidden = rms_norm(collapse_streams(streams, head.hc), head.norm, eps)
    return output(hidden).astype(mx.float32)


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
        streams = embed(self.weights.embed, plan.ids, self.config.block.n_streams)
        captured: dict[int, mx.array] = {}
        for i, weights in enumerate(self.weights.blocks):
            streams = self._block(streams, weights, i, log, plan)
            if i in self._capture_layers:
                captured[i] = streams.mean(axis=1)
        rows = streams[-1:] if last_only else streams
        logits = head_logits(
            rows, self.weights.head, self.weights.output, self.config.block.rms_eps
        )
        capture = None
        if captured:
            capture = mx.concatenate([captured[i] for i in self._capture_layers], axis=-1)
        return PassResult(logits=logits, capture=capture)

    def attend(self, x: mx.array, layer: int, log: KVLog, plan: Plan) -> mx.array:
        """One layer's attention branch alone, for tools: normed rows `(L, D)` to `(L, D)`."""
        return self._attention(x, self.weights.blocks[layer].attn, log.layers[layer], plan)

    def _block(
        self, streams: mx.array, w: BlockWeights, layer: int, log: KVLog, plan: Plan
    ) -> mx.array:
        eps = self.config.block.rms_eps
        mixed, mix = read_streams(streams, w.hc_attn)
        x = rms_norm(mixed, w.attn.norm, eps).astype(self.dtype)
        streams = write_streams(
            streams, mix, self._attention(x, w.attn, log.layers[layer], plan)
        )
        mixed, mix = read_streams(streams, w.hc_ffn)
        x = rms_norm(mixed, w.ffn.norm, eps).astype(self.dtype)
        return write_streams(streams, mix, feed_forward(x, plan.ids, w.ffn, self.config.block))
