"""Target weights from a weight source, layer by layer."""

from __future__ import annotations

import mlx.core as mx

from ds4chat.model.config import BlockConfig, TargetConfig
from ds4chat.model.source import WeightSource
from ds4chat.model.weights import (
    AttentionWeights,
    BlockWeights,
    CompressorWeights,
    FeedForwardWeights,
    HeadWeights,
    TargetWeights,
)
from ds4chat.ops.blocks import Blocks
from ds4chat.ops.hyper import HyperWeights, expand_scale
from ds4chat.ops.linear import Dense, Linear
from ds4chat.ops.moe import ExpertWeights


def build_target(source: WeightSource, config: TargetConfig) -> TargetWeights:
    """Read every weight of the target."""
    blocks = []
    for i in range(config.n_layers):
        blocks.append(_build_layer(source, config, i))
        mx.eval(small_arrays(blocks[-1]))
    return TargetWeights(
        embed=source.embedding(),
        blocks=tuple(blocks),
        head=build_head(source, config.block, "output_hc_", "output_norm.weight"),
        output=source.linear("output.weight"),
    )


def build_head(
    source: WeightSource, block: BlockConfig, hc_prefix: str, norm: str
) -> HeadWeights:
    """The collapse of the streams and the norm before the output matrix."""
    return HeadWeights(
        hc=build_hyper(source, block, hc_prefix, n_scales=1), norm=source.vector(norm)
    )


def build_block(
    source: WeightSource,
    block: BlockConfig,
    prefix: str,
    attn: AttentionWeights,
    *,
    is_hash: bool = False,
) -> BlockWeights:
    """One block around its attention branch."""
    return BlockWeights(
        hc_attn=build_hyper(source, block, prefix + "hc_attn_", n_scales=3),
        attn=attn,
        hc_ffn=build_hyper(source, block, prefix + "hc_ffn_", n_scales=3),
        ffn=_feed_forward(source, block, prefix, is_hash),
    )


def build_attention(
    source: WeightSource, block: BlockConfig, prefix: str, ratio: int = 0
) -> AttentionWeights:
    """The attention branch of a layer or stage."""
    names = ["attn_q_a", "attn_kv"]
    if ratio:
        names += ["attn_compressor_kv", "attn_compressor_gate"]
    if ratio == 4:
        names += ["indexer_compressor_kv", "indexer_compressor_gate", "indexer.proj"]
    full = [f"{prefix}{n}.weight" for n in names]
    return AttentionWeights(
        norm=source.vector(prefix + "attn_norm.weight"),
        inputs=source.fused(full, islands=frozenset(full[2:]), are_joined=True),
        q_norm=source.vector(prefix + "attn_q_a_norm.weight"),
        q_b=source.linear(prefix + "attn_q_b.weight"),
        kv_norm=source.vector(prefix + "attn_kv_a_norm.weight"),
        sink=source.vector(prefix + "attn_sinks.weight"),
        out_a=source.grouped(prefix + "attn_output_a.weight", block.n_groups),
        out_b=source.linear(prefix + "attn_output_b.weight"),
        compressor=_compressor(source, prefix + "attn_compressor_") if ratio else None,
        index_compressor=(
            _compressor(source, prefix + "indexer_compressor_") if ratio == 4 else None
        ),
        index_q=source.linear(prefix + "indexer.attn_q_b.weight") if ratio == 4 else None,
    )


def _build_layer(source: WeightSource, config: TargetConfig, i: int) -> BlockWeights:
    prefix = f"blk.{i}."
    attn = build_attention(source, config.block, prefix, config.compress_ratios[i])
    return build_block(source, config.block, prefix, attn, is_hash=i < config.n_hash_layers)


def build_hyper(
    source: WeightSource, block: BlockConfig, prefix: str, n_scales: int
) -> HyperWeights:
    """Hyper-connection parameters: three scales for a branch, one for an output head."""
    scale = source.vector(prefix + "scale.weight")
    return HyperWeights(
        fn=mx.contiguous(source.matrix(prefix + "fn.weight").T),
        scale=expand_scale(scale, block.n_streams) if n_scales == 3 else scale,
        base=source.vector(prefix + "base.weight"),
        n_streams=block.n_streams,
        rounds=block.sinkhorn_rounds,
        hc_eps=block.hc_eps,
        rms_eps=block.rms_eps,
    )


def _compressor(source: WeightSource, prefix: str) -> CompressorWeights:
    return CompressorWeights(
        bias=source.matrix(prefix + "ape.weight"), norm=source.vector(prefix + "norm.weight")
    )


def _feed_forward(
    source: WeightSource, block: BlockConfig, prefix: str, is_hash: bool
) -> FeedForwardWeights:
    router = source.linear(prefix + "ffn_gate_inp.weight", is_island=True)
    bias = None if is_hash else source.vector(prefix + "exp_probs_b.bias")
    return FeedForwardWeights(
        norm=source.vector(prefix + "ffn_norm.weight"),
        router=router if bias is None else _whole_or_nan(router, bias, block.dim),
        experts=_experts(source, block, prefix),
        bias=bias,
        table=source.table(prefix + "ffn_gate_tid2eid.weight") if is_hash else None,
    )


def _whole_or_nan(router: Linear, bias: mx.array, dim: int) -> Linear:
    """The router as it is, or all NaN if it or its bias holds a single number of that kind.

    A NaN among the scores sorts last: its expert would silently never be chosen.
    """
    if bool(mx.isfinite(bias).all()) and _is_finite(router):
        return router
    return Dense(weight=mx.full((dim, bias.shape[0]), mx.nan))


def _is_finite(weight: Linear) -> bool:
    if isinstance(weight, Blocks):
        return weight.is_finite()
    return all(bool(mx.isfinite(array).all()) for array in weight.arrays())


def _experts(source: WeightSource, block: BlockConfig, prefix: str) -> ExpertWeights:
    gate, up, down = (f"{prefix}ffn_{n}_exps.weight" for n in ("gate", "up", "down"))
    s_gate, s_up, s_down = (f"{prefix}ffn_{n}_shexp.weight" for n in ("gate", "up", "down"))
    if source.storage.keeps_blocks:
        return ExpertWeights(
            gate_up=(source.linear(gate), source.linear(up)),
            down=source.linear(down),
            shared_gate_up=source.fused([s_gate, s_up]),
            shared_down=source.linear(s_down),
            n_routed=block.n_experts,
            limit=block.swiglu_limit,
        )
    is_stacked = block.n_shared == 1
    stacked = source.stacked_experts([gate, up], [s_gate, s_up] if is_stacked else [])
    return ExpertWeights(
        gate_up=(stacked,),
        down=source.stacked_experts([down], [s_down] if is_stacked else []),
        shared_gate_up=None if is_stacked else source.fused([s_gate, s_up]),
        shared_down=None if is_stacked else source.linear(s_down),
        n_routed=block.n_experts,
        limit=block.swiglu_limit,
    )


def small_arrays(block: BlockWeights) -> list[mx.array]:
    """Arrays that are still lazy after reading a block."""
    arrays = [block.hc_attn.fn, block.hc_ffn.fn, block.hc_attn.scale, block.hc_ffn.scale]
    if block.attn.compressor is not None:
        arrays.append(block.attn.compressor.bias)
    return arrays
