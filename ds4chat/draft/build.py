"""Draft weights from a weight source; names are the canonical ones (`mtp.S.<suffix>`)."""

from __future__ import annotations

import mlx.core as mx

from ds4chat.draft.config import DraftConfig
from ds4chat.draft.dspark import DraftWeights
from ds4chat.model.build import build_attention, build_block, build_head, small_arrays
from ds4chat.model.source import WeightSource


def build_draft(source: WeightSource, config: DraftConfig) -> DraftWeights:
    """Read every weight of the draft module."""
    stages = []
    for s in range(config.n_stages):
        prefix = f"mtp.{s}."
        attn = build_attention(source, config.block, prefix)
        stages.append(build_block(source, config.block, prefix, attn))
        mx.eval(small_arrays(stages[-1]))
    last = f"mtp.{config.n_stages - 1}."
    bias = last + "confidence_head.proj.bias"
    return DraftWeights(
        main_proj=source.linear("mtp.0.main_proj.weight"),
        main_norm=source.vector("mtp.0.main_norm.weight"),
        context_kv=source.fused(
            [f"mtp.{s}.attn_kv.weight" for s in range(config.n_stages)], are_joined=True
        ),
        stages=tuple(stages),
        head=build_head(source, config.block, last + "hc_head_", last + "norm.weight"),
        markov_in=source.matrix(last + "markov_head.markov_w1.weight"),
        markov_out=source.linear(last + "markov_head.markov_w2.weight"),
        confidence=source.vector(last + "confidence_head.proj.weight"),
        confidence_bias=source.vector(bias).reshape(()) if source.has(bias) else mx.array(0.0),
    )
