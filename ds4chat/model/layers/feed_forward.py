"""The mixture-of-experts branch of a V4 block (`spec/architecture.md` section 7)."""

from __future__ import annotations

import mlx.core as mx

from ds4chat.model.config import BlockConfig
from ds4chat.model.weights import FeedForwardWeights
from ds4chat.ops.moe import route_scores, route_weights, run_experts, top_experts


def feed_forward(
    x: mx.array, ids: mx.array, w: FeedForwardWeights, block: BlockConfig
) -> mx.array:
    """Evaluate normed rows `(L, D)`; `ids` `(L,)` route the hash layers. Float32 out."""
    scores = route_scores(w.router(x))
    if w.table is not None:
        expert_idx = w.table[ids]
    else:
        assert w.bias is not None
        expert_idx = top_experts(scores, w.bias, block.n_experts_used)
    weights = route_weights(scores, expert_idx, block.expert_scale)
    return run_experts(x, expert_idx, weights, w.experts)
