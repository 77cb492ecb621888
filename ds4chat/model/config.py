"""Sizes of the target model, read from the file's metadata and never from constants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig:
    """Geometry of one V4 block; target layers and draft stages share it.

    Names in brackets are those of `spec` papers: D, H, d, rd, G, R, W, E, F, m.
    """

    dim: int  # width of one stream [D]
    n_heads: int  # query heads; one shared key/value head [H]
    head_dim: int  # [d]
    rope_dim: int  # the last `rope_dim` channels of a head rotate [rd]
    q_lora: int
    n_groups: int  # groups of the output projection [G]
    o_lora: int  # rank of each group [R]
    window: int  # window rows, the query's own included [W]
    n_experts: int  # [E]
    n_experts_used: int
    expert_dim: int  # [F]
    n_shared: int  # shared experts (their width is n_shared * expert_dim)
    expert_scale: float  # routed_scaling_factor
    swiglu_limit: float
    n_streams: int  # [m]
    sinkhorn_rounds: int
    hc_eps: float
    rms_eps: float
    rope_base: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """The target model."""

    name: str
    block: BlockConfig
    n_layers: int
    n_vocab: int
    compress_ratios: tuple[int, ...]  # one of 0, 4, 128 for each layer
    n_hash_layers: int
    index_heads: int
    index_dim: int
    index_topk: int
    compress_rope_base: float
    rope_factor: float  # YaRN, compressed layers only
    rope_original_ctx: int
    rope_beta_fast: float
    rope_beta_slow: float
    ctx_trained: int
