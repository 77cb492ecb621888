"""A small made-up target, for benchmarks that need a model but no particular one.

Every kind of layer is there; the weights are random, and the text is nonsense.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.cli.bench_open import FLASH
from ds4chat.model.binding import Kind, Place, target_layout
from ds4chat.text import tokenizer as words
from ds4chat.text.bytemap import BYTE_SYMBOLS

SMALL = replace(
    FLASH,
    name="small made-up model",
    block=replace(
        FLASH.block,
        dim=64,
        n_heads=4,
        head_dim=128,
        q_lora=32,
        n_groups=2,
        o_lora=16,
        n_experts=8,
        n_experts_used=3,
        expert_dim=32,
    ),
    n_layers=6,
    n_vocab=512,
    compress_ratios=(0, 0, 4, 128, 4, 0),
    index_heads=16,
    index_topk=16,
    rope_original_ctx=4096,
    ctx_trained=65_536,
)


def write_small_model(path: Path) -> None:
    """Write `SMALL` as GGUF, float32."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "deepseek4")
    writer.add_string("general.name", SMALL.name)
    for name, value in _keys().items():
        key = f"deepseek4.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_array(key, value)
    _add_vocabulary(writer)
    rng = np.random.default_rng(4)
    for place in target_layout(SMALL):
        if not place.is_optional:
            writer.add_tensor(place.name, _weights(place, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _weights(place: Place, rng: np.random.Generator) -> NDArray[Any]:
    if place.kind is Kind.IDS:
        n_experts = SMALL.block.n_experts
        rows = [rng.permutation(n_experts)[: place.shape[1]] for _ in range(place.shape[0])]
        return np.stack(rows).astype(np.int32)
    values = rng.standard_normal(place.shape) / math.sqrt(place.shape[-1])
    is_gain = "norm" in place.name or "scale" in place.name
    return (values + (1.0 if is_gain else 0.0)).astype(np.float32)


def _add_vocabulary(writer: Any) -> None:
    head = [words.BOS, words.EOS]
    tail = [words.USER, words.ASSISTANT, words.THINK_OPEN, words.THINK_CLOSE, words.DSML]
    made = [*BYTE_SYMBOLS, "th"]
    made += [f"<fill{i}>" for i in range(SMALL.n_vocab - len(head) - len(made) - len(tail))]
    normal, control = 1, 3
    types = [control] * len(head) + [normal] * len(made)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "joyai-llm")
    writer.add_array("tokenizer.ggml.tokens", [*head, *made, *tail])
    writer.add_array("tokenizer.ggml.token_type", types + [control] * len(tail))
    writer.add_array("tokenizer.ggml.merges", ["t h"])


def _keys() -> dict[str, Any]:
    block = SMALL.block
    return {
        "block_count": SMALL.n_layers,
        "embedding_length": block.dim,
        "vocab_size": SMALL.n_vocab,
        "context_length": SMALL.ctx_trained,
        "attention.head_count": block.n_heads,
        "attention.head_count_kv": 1,
        "attention.key_length": block.head_dim,
        "attention.value_length": block.head_dim,
        "rope.dimension_count": block.rope_dim,
        "attention.q_lora_rank": block.q_lora,
        "attention.output_lora_rank": block.o_lora,
        "attention.output_group_count": block.n_groups,
        "expert_count": block.n_experts,
        "expert_used_count": block.n_experts_used,
        "expert_feed_forward_length": block.expert_dim,
        "expert_shared_count": block.n_shared,
        "hash_layer_count": SMALL.n_hash_layers,
        "attention.sliding_window": block.window,
        "attention.indexer.head_count": SMALL.index_heads,
        "attention.indexer.key_length": SMALL.index_dim,
        "attention.indexer.top_k": SMALL.index_topk,
        "hyper_connection.count": block.n_streams,
        "hyper_connection.sinkhorn_iterations": block.sinkhorn_rounds,
        "rope.scaling.original_context_length": SMALL.rope_original_ctx,
        "hyper_connection.epsilon": block.hc_eps,
        "rope.freq_base": block.rope_base,
        "rope.scaling.factor": SMALL.rope_factor,
        "rope.scaling.yarn_beta_fast": SMALL.rope_beta_fast,
        "rope.scaling.yarn_beta_slow": SMALL.rope_beta_slow,
        "attention.compress_rope_freq_base": SMALL.compress_rope_base,
        "expert_weights_scale": block.expert_scale,
        "attention.layer_norm_rms_epsilon": block.rms_eps,
        "expert_weights_norm": True,
        "attention.compress_ratios": list(SMALL.compress_ratios),
        "swiglu_clamp_exp": [block.swiglu_limit] * SMALL.n_layers,
    }
