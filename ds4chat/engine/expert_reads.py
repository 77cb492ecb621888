"""Which experts a pass reads: rows that share an expert read it once, if a kernel is good."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.engine.runner import Timeline
from ds4chat.model.layers.feed_forward import feed_forward
from ds4chat.model.target import Target, embed
from ds4chat.model.weights import FeedForwardWeights
from ds4chat.ops.hyper import read_streams, write_streams
from ds4chat.ops.moe import route_scores, top_experts
from ds4chat.ops.norms import rms_norm


def expert_bytes(target: Target, timeline: Timeline, ids: Sequence[int]) -> list[int]:
    """Bytes of the distinct routed experts that the first 1, 2, .. of the rows `ids` choose.

    The rows are evaluated behind the timeline on stock operations and not committed.
    """
    totals = [0] * len(ids)
    for layer, chosen in enumerate(choices(target, timeline, ids)):
        size = _bytes_of_one(target.weights.blocks[layer].ffn)
        for k in range(len(ids)):
            totals[k] += len(np.unique(chosen[: k + 1])) * size
    return totals


def choices(target: Target, timeline: Timeline, ids: Sequence[int]) -> list[NDArray[np.int64]]:
    """`(rows, experts used)` ids for each layer."""
    plan = target.plan(timeline.log, ids, timeline.log.n, row_exact=True)
    block, eps = target.config.block, target.config.block.rms_eps
    streams = embed(target.weights.embed, plan.ids, block.n_streams)
    found = []
    for i, w in enumerate(target.weights.blocks):
        mixed, mix = read_streams(streams, w.hc_attn)
        x = rms_norm(mixed, w.attn.norm, eps).astype(target.dtype)
        streams = write_streams(streams, mix, target.attend(x, i, timeline.log, plan))
        mixed, mix = read_streams(streams, w.hc_ffn)
        x = rms_norm(mixed, w.ffn.norm, eps).astype(target.dtype)
        chosen = _chosen(x, plan.ids, w.ffn, block.n_experts_used)
        streams = write_streams(streams, mix, feed_forward(x, plan.ids, w.ffn, block))
        mx.eval(chosen, streams, timeline.arrays())
        found.append(np.array(chosen).astype(np.int64))
    return found


def _chosen(x: mx.array, ids: mx.array, w: FeedForwardWeights, k: int) -> mx.array:
    if w.table is not None:
        return w.table[ids]
    assert w.bias is not None
    return top_experts(route_scores(w.router(x)), w.bias, k)


def _bytes_of_one(w: FeedForwardWeights) -> int:
    arrays = [a for part in (*w.experts.gate_up, w.experts.down) for a in part.arrays()]
    return sum(a.nbytes // a.shape[0] for a in arrays)
