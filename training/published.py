"""Load a checkpoint with published tensor names into the PyTorch modules (golden vectors)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from training.dspark import Draft
from training.model import Target

BLOCK_NAMES = {
    "attn_norm": "attn_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "attn_sinks": "attn.attn_sink",
    "attn_q_a": "attn.wq_a.weight",
    "attn_q_a_norm": "attn.q_norm.weight",
    "attn_q_b": "attn.wq_b.weight",
    "attn_kv": "attn.wkv.weight",
    "attn_kv_a_norm": "attn.kv_norm.weight",
    "attn_output_a": "attn.wo_a.weight",
    "attn_output_b": "attn.wo_b.weight",
    "attn_compressor_ape": "attn.compressor.ape",
    "attn_compressor_kv": "attn.compressor.wkv.weight",
    "attn_compressor_gate": "attn.compressor.wgate.weight",
    "attn_compressor_norm": "attn.compressor.norm.weight",
    "indexer.attn_q_b": "attn.indexer.wq_b.weight",
    "indexer.proj": "attn.indexer.weights_proj.weight",
    "indexer_compressor_ape": "attn.indexer.compressor.ape",
    "indexer_compressor_kv": "attn.indexer.compressor.wkv.weight",
    "indexer_compressor_gate": "attn.indexer.compressor.wgate.weight",
    "indexer_compressor_norm": "attn.indexer.compressor.norm.weight",
    "ffn_gate_inp": "ffn.gate.weight",
    "exp_probs_b": "ffn.gate.bias",
    "ffn_gate_tid2eid": "ffn.gate.tid2eid",
    "ffn_gate_shexp": "ffn.shared_experts.w1.weight",
    "ffn_up_shexp": "ffn.shared_experts.w3.weight",
    "ffn_down_shexp": "ffn.shared_experts.w2.weight",
}
EXPERTS = {"ffn_gate_exps": "w1", "ffn_up_exps": "w3", "ffn_down_exps": "w2"}
TOP_NAMES = {
    "token_embd": "embed.weight",
    "output": "head.weight",
    "output_norm": "norm.weight",
    "output_hc_fn": "hc_head_fn",
    "output_hc_base": "hc_head_base",
    "output_hc_scale": "hc_head_scale",
}
STAGE_NAMES = {
    "main_proj": "main_proj.weight",
    "main_norm": "main_norm.weight",
    "norm": "norm.weight",
    "hc_head_fn": "hc_head_fn",
    "hc_head_base": "hc_head_base",
    "hc_head_scale": "hc_head_scale",
    "markov_head.markov_w1": "markov_head.markov_w1.weight",
    "markov_head.markov_w2": "markov_head.markov_w2.weight",
    "confidence_head.proj": "confidence_head.proj.weight",
}


def as_float(a: np.ndarray) -> torch.Tensor:
    """An npz array as float32 (uint16 holds bf16 bits) or int32."""
    if a.dtype == np.uint16:
        a = (a.astype(np.uint32) << 16).view(np.float32)
    return torch.from_numpy(np.array(a))


def _find(weights: Mapping[str, np.ndarray], prefix: str, name: str) -> torch.Tensor:
    if name in EXPERTS:
        parts: list[torch.Tensor] = []
        while (full := f"{prefix}ffn.experts.{len(parts)}.{EXPERTS[name]}.weight") in weights:
            parts.append(as_float(weights[full]))
        return torch.stack(parts)
    names = {**STAGE_NAMES, **BLOCK_NAMES} if prefix else TOP_NAMES
    return as_float(weights[prefix + names.get(name, name)])


def load(module: Target | Draft, weights: Mapping[str, np.ndarray]) -> None:
    """Fill a target or draft from published-name arrays; every tensor must be there."""
    state = {}
    for key in module.state_dict():
        head, _, rest = key.partition(".")
        if head in ("blk", "mtp"):
            index, _, name = rest.partition(".")
            prefix = f"{'layers' if head == 'blk' else 'mtp'}.{index}."
            state[key] = _find(weights, prefix, name)
        else:
            state[key] = _find(weights, "", key)
    module.load_state_dict(state)
