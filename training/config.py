"""Sizes of the target and the draft, and the run's own constants.

The field names are those of `ds4chat.model.config` (this package must not import MLX, so the
dataclass is repeated here with what training needs).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Geometry of a V4 target and of the DSpark stages that follow it."""

    n_vocab: int
    dim: int
    n_layers: int
    compress_ratios: tuple[int, ...]
    n_heads: int
    head_dim: int
    rope_dim: int
    q_lora: int
    n_groups: int
    o_lora: int
    window: int
    n_experts: int
    n_experts_used: int
    expert_dim: int
    n_shared: int
    expert_scale: float
    swiglu_limit: float
    n_hash_layers: int
    n_streams: int
    sinkhorn_rounds: int
    hc_eps: float
    rms_eps: float
    index_heads: int
    index_dim: int
    index_topk: int
    rope_base: float
    compress_rope_base: float
    rope_factor: float
    rope_original_ctx: int
    rope_beta_fast: float
    rope_beta_slow: float
    ctx_trained: int
    n_stages: int
    block_size: int
    noise_id: int
    target_layers: tuple[int, ...]
    markov_rank: int

    def to_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint's header."""
        return asdict(self)


NANO = ModelConfig(
    n_vocab=6144,
    dim=256,
    n_layers=8,
    compress_ratios=(0, 0, 4, 128, 4, 128, 4, 0),
    n_heads=4,
    head_dim=128,
    rope_dim=64,
    q_lora=128,
    n_groups=2,
    o_lora=128,
    window=128,
    n_experts=16,
    n_experts_used=4,
    expert_dim=128,
    n_shared=1,
    expert_scale=1.5,
    swiglu_limit=10.0,
    n_hash_layers=3,
    n_streams=4,
    sinkhorn_rounds=4,
    hc_eps=1e-6,
    rms_eps=1e-6,
    index_heads=8,
    index_dim=128,
    index_topk=128,
    rope_base=10000.0,
    compress_rope_base=160000.0,
    rope_factor=16.0,
    rope_original_ctx=4096,
    rope_beta_fast=32.0,
    rope_beta_slow=1.0,
    ctx_trained=4096,
    n_stages=3,
    block_size=5,
    noise_id=2,
    target_layers=(5, 6, 7),
    markov_rank=128,
)
"""The shipped geometry (`noise_id` is the id of the placeholder token, see tokenizer.py)."""


def from_json(values: dict[str, Any]) -> ModelConfig:
    """Inverse of `ModelConfig.to_json` (lists become tuples)."""
    return ModelConfig(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def from_published(path: Path) -> ModelConfig:
    """Read a Hugging Face style config (`{"config": {...}}` or the fields themselves)."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    c = raw.get("config", raw)
    rope = c["rope_scaling"]
    return ModelConfig(
        n_vocab=c["vocab_size"],
        dim=c["hidden_size"],
        n_layers=c["num_hidden_layers"],
        compress_ratios=tuple(c["compress_ratios"][: c["num_hidden_layers"]]),
        n_heads=c["num_attention_heads"],
        head_dim=c["head_dim"],
        rope_dim=c["qk_rope_head_dim"],
        q_lora=c["q_lora_rank"],
        n_groups=c["o_groups"],
        o_lora=c["o_lora_rank"],
        window=c["sliding_window"],
        n_experts=c["n_routed_experts"],
        n_experts_used=c["num_experts_per_tok"],
        expert_dim=c["moe_intermediate_size"],
        n_shared=c["n_shared_experts"],
        expert_scale=c["routed_scaling_factor"],
        swiglu_limit=c["swiglu_limit"],
        n_hash_layers=c["num_hash_layers"],
        n_streams=c["hc_mult"],
        sinkhorn_rounds=c["hc_sinkhorn_iters"],
        hc_eps=c["hc_eps"],
        rms_eps=c["rms_norm_eps"],
        index_heads=c["index_n_heads"],
        index_dim=c["index_head_dim"],
        index_topk=c["index_topk"],
        rope_base=c["rope_theta"],
        compress_rope_base=c["compress_rope_theta"],
        rope_factor=rope["factor"],
        rope_original_ctx=rope["original_max_position_embeddings"],
        rope_beta_fast=rope["beta_fast"],
        rope_beta_slow=rope["beta_slow"],
        ctx_trained=c["max_position_embeddings"],
        n_stages=c["n_mtp_layers"],
        block_size=c["dspark_block_size"],
        noise_id=c["dspark_noise_token_id"],
        target_layers=tuple(c["dspark_target_layer_ids"]),
        markov_rank=c["dspark_markov_rank"],
    )
