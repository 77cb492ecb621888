"""The weights of a V4 block as the layers use them."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ds4chat.ops.hyper import HyperWeights
from ds4chat.ops.linear import Fused, Linear
from ds4chat.ops.moe import ExpertWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorWeights:
    """`bias` `(ratio, width)` is the position bias of the gates, `norm` `(c,)`."""

    bias: mx.array
    norm: mx.array


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWeights:
    """One attention branch.

    `inputs` gives, from one input: q_a, kv; with a compressor also its values and gates; with
    an indexer also its compressor's values and gates and the head weights.
    """

    norm: mx.array
    inputs: Fused
    q_norm: mx.array
    q_b: Linear
    kv_norm: mx.array
    sink: mx.array
    out_a: Linear  # of G groups, [H/G * d, R] each
    out_b: Linear
    compressor: CompressorWeights | None = None
    index_compressor: CompressorWeights | None = None
    index_q: Linear | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardWeights:
    """One mixture-of-experts branch; `table` `(V, k)` instead of `bias` on hash layers."""

    norm: mx.array
    router: Linear
    experts: ExpertWeights
    bias: mx.array | None = None
    table: mx.array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWeights:
    """One layer of the target or one stage of the draft."""

    hc_attn: HyperWeights
    attn: AttentionWeights
    hc_ffn: HyperWeights
    ffn: FeedForwardWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWeights:
    """The collapse of the streams and the final norm."""

    hc: HyperWeights
    norm: mx.array


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetWeights:
    """The whole target. `embed` `(V, D)`."""

    embed: mx.array
    blocks: tuple[BlockWeights, ...]
    head: HeadWeights
    output: Linear
