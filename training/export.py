"""Write the pair as GGUF files, and read such files back into the PyTorch modules.

    python -m training.export --target target.pt [--draft draft.pt] --prepared DIR --out DIR

Keys and tensor names are those of DeepSeek-V4-Flash's base file and of its DSpark support file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import nn

from training import checkpoint, tokenizer
from training.config import ModelConfig
from training.dspark import Draft
from training.formats import stored_type
from training.model import Target

NAME = "ds4-nano"
_TYPES = {
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
    "F16": gguf.GGMLQuantizationType.F16,
    "F32": gguf.GGMLQuantizationType.F32,
}


def tensor_name(key: str) -> str:
    """Name in the file of a module's entry."""
    return key + (".bias" if key.endswith("exp_probs_b") else ".weight")


def add_tensors(w: gguf.GGUFWriter, state: dict[str, torch.Tensor]) -> None:
    """Add every entry in its stored type."""
    for key, value in state.items():
        array = value.detach().cpu().numpy()
        kind = stored_type(key)
        if kind == "I32":
            w.add_tensor(tensor_name(key), array.astype(np.int32))
            continue
        data = gguf.quants.quantize(np.ascontiguousarray(array, np.float32), _TYPES[kind])
        w.add_tensor(tensor_name(key), data, raw_dtype=_TYPES[kind])


def add_sizes(w: gguf.GGUFWriter, c: ModelConfig) -> None:
    """Metadata of the base file."""
    whole = {
        "block_count": c.n_layers,
        "embedding_length": c.dim,
        "vocab_size": c.n_vocab,
        "context_length": c.ctx_trained,
        "attention.head_count": c.n_heads,
        "attention.head_count_kv": 1,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        "rope.dimension_count": c.rope_dim,
        "attention.q_lora_rank": c.q_lora,
        "attention.output_lora_rank": c.o_lora,
        "attention.output_group_count": c.n_groups,
        "expert_count": c.n_experts,
        "expert_used_count": c.n_experts_used,
        "expert_feed_forward_length": c.expert_dim,
        "expert_shared_count": c.n_shared,
        "hash_layer_count": c.n_hash_layers,
        "attention.sliding_window": c.window,
        "attention.indexer.head_count": c.index_heads,
        "attention.indexer.key_length": c.index_dim,
        "attention.indexer.top_k": c.index_topk,
        "hyper_connection.count": c.n_streams,
        "hyper_connection.sinkhorn_iterations": c.sinkhorn_rounds,
        "rope.scaling.original_context_length": c.rope_original_ctx,
    }
    real = {
        "hyper_connection.epsilon": c.hc_eps,
        "rope.freq_base": c.rope_base,
        "rope.scaling.factor": c.rope_factor,
        "rope.scaling.yarn_beta_fast": c.rope_beta_fast,
        "rope.scaling.yarn_beta_slow": c.rope_beta_slow,
        "attention.compress_rope_freq_base": c.compress_rope_base,
        "expert_weights_scale": c.expert_scale,
        "attention.layer_norm_rms_epsilon": c.rms_eps,
    }
    for key, value in whole.items():
        w.add_uint32(f"deepseek4.{key}", int(value))
    for key, value in real.items():
        w.add_float32(f"deepseek4.{key}", float(value))
    w.add_bool("deepseek4.expert_weights_norm", True)
    depth = c.n_layers + c.n_stages
    ratios = [*c.compress_ratios, *([0] * c.n_stages)]
    w.add_array("deepseek4.attention.compress_ratios", [int(r) for r in ratios])
    w.add_array("deepseek4.swiglu_clamp_exp", [float(c.swiglu_limit)] * depth)


def add_vocabulary(w: gguf.GGUFWriter, vocab: tokenizer.Vocabulary) -> None:
    """Tokenizer metadata; no chat template, so V4's own rendering applies."""
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("joyai-llm")
    w.add_token_list(list(vocab.tokens))
    w.add_token_types(vocab.token_types)
    w.add_token_merges(list(vocab.merges))
    w.add_bos_token_id(tokenizer.BOS_ID)
    w.add_eos_token_id(tokenizer.EOS_ID)
    w.add_pad_token_id(tokenizer.NOISE_ID)
    w.add_add_bos_token(True)


def _finish(w: gguf.GGUFWriter) -> None:
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_base(path: Path, c: ModelConfig, target: Target, vocab: tokenizer.Vocabulary) -> None:
    """The base file."""
    w = gguf.GGUFWriter(path, "deepseek4")
    w.add_name(NAME)
    w.add_license("MIT")
    add_sizes(w, c)
    add_vocabulary(w, vocab)
    add_tensors(w, target.state_dict())
    _finish(w)


def write_support(path: Path, c: ModelConfig, draft: Draft) -> None:
    """The support file."""
    w = gguf.GGUFWriter(path, "deepseek4-dspark")
    w.add_name(f"{NAME} DSpark support")
    w.add_license("MIT")
    for key, value in (
        ("block_size", c.block_size),
        ("markov_rank", c.markov_rank),
        ("noise_token_id", c.noise_id),
        ("stage_count", c.n_stages),
        ("n_layers", c.n_stages),
    ):
        w.add_uint32(f"dspark.{key}", value)
    w.add_array("dspark.target_layer_ids", [int(i) for i in c.target_layers])
    add_tensors(w, draft.state_dict())
    _finish(w)


def fill(module: nn.Module, path: Path) -> None:
    """Load a file's (decoded) tensors into a module of the same geometry."""
    reader = gguf.GGUFReader(path)
    found: dict[str, Any] = {t.name: t for t in reader.tensors}
    state = {}
    for key, like in module.state_dict().items():
        t = found[tensor_name(key)]
        array = np.array(
            gguf.quants.dequantize(t.data, t.tensor_type) if t.tensor_type != 26 else t.data
        )
        state[key] = torch.from_numpy(array).reshape(like.shape).to(like.dtype)
    module.load_state_dict(state)


def read_vocabulary(path: Path) -> tokenizer.Vocabulary:
    """The vocabulary of a base file."""
    fields = gguf.GGUFReader(path).fields
    return tokenizer.Vocabulary(
        tuple(fields["tokenizer.ggml.tokens"].contents()),
        tuple(fields["tokenizer.ggml.merges"].contents()),
    )


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--target", type=Path, required=True)
    p.add_argument("--draft", type=Path)
    p.add_argument("--prepared", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    cpu = torch.device("cpu")
    state = checkpoint.load(a.target, cpu)
    c = state["config"]
    target = Target(c)
    target.load_state_dict(state["module"])
    write_base(
        a.out / "base.gguf", c, target, tokenizer.Vocabulary.load(a.prepared / "vocab.json")
    )
    if a.draft:
        draft = Draft(c)
        draft.load_state_dict(checkpoint.load(a.draft, cpu)["module"])
        write_support(a.out / "support.gguf", c, draft)
    for f in sorted(a.out.glob("*.gguf")):
        print(f"{f.name}: {f.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
