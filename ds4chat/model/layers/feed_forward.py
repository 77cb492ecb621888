"""The mixture-of-experts branch of a V4 block (`spec/architecture.md` section 7)."""

from __future__ import annotations

import mlx.core as mx

from ds4chat.model.config import BlockConfig
from ds4chat.model.weights import FeedForwardWeights
from ds4chat.ops import moe_kernels
from ds4chat.ops.moe import route_scores, route_weights, run_experts, top_experts


def feed_forward(
    x: mx.array, ids: mx.array, w: FeedForwardWeights, block: BlockConfig
) -> mx.array:
    """Evaluate normed rows `(L, D)`; `ids` `(L,)` route the hash layers. Float32 out."""
    logits = w.router(x)
    if w.table is not None:
        chooser: tuple[mx.array] | tuple[mx.array, mx.array] = (w.table, ids)
    else:
        assert w.bias is not None
        chooser = (w.bias,)
    made = moe_kernels.route(logits, chooser, block.n_experts_used, block.expert_scale)
    picks, weights = made or _route(logits, chooser, block)
    return run_experts(x, picks, weights, w.experts)


def _route(
    logits: mx.array,
    chooser: tuple[mx.array] | tuple[mx.array, mx.array],
    block: BlockConfig,
) -> tuple[mx.array, mx.array]:
    """`moe_kernels.route` in stock operations."""
    scores = route_scores(logits)
    if len(chooser) > 1:
        table, ids = chooser
        picks = table[ids]
    else:
        picks = top_experts(scores, chooser[0], block.n_experts_used)
    return picks, route_weights(scores, picks, block.expert_scale)
