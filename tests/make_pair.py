"""A tiny target and its support file, as GGUF, from a seed.

`python -m tests.make_pair OUT --seed 3 --quant q2`, or `make_pair(folder, seed=3, quant="q2")`.
The default is the geometry of the golden vectors, and seed 11 in f32 gives their very weights:
each tensor is drawn from `crc32("SEED:CHECKPOINT NAME")`.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from numpy.typing import NDArray

from tests.pair_blocks import encode, fitting, is_random, random_blocks, rng_for, round_bf16
from tests.pair_layout import QUANTS, SPELLINGS, PairSpec, Part, base_parts, support_parts
from tests.pair_vocab import Vocab, make_vocab


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPaths:
    """The two files."""

    base: Path
    support: Path


@dataclass(frozen=True, slots=True)
class Types:
    """Block formats of one layer. `light`: embedding, mixers, router, compressor, indexer."""

    gate: Type
    down: Type
    dense: Type
    light: Type = Type.F16

    def of(self, part: Part) -> Type:
        """The format of a tensor, before it is fitted to its rows."""
        if part.kind == "routed":
            return self.down if "_down_" in part.stored else self.gate
        if part.kind in ("dense", "table"):
            return self.dense
        return self.light if part.kind in ("light", "embed", "fn", "ape") else Type.F32


def _same(kind: Type) -> Types:
    return Types(kind, kind, kind, kind)


TYPES: dict[str, tuple[Types, ...]] = {
    "f32": (_same(Type.F32),),
    "f16": (_same(Type.F16),),
    "bf16": (_same(Type.BF16),),
    "q8_0": (Types(Type.Q8_0, Type.Q8_0, Type.Q8_0),),
    "q4_k": (Types(Type.Q4_K, Type.Q4_K, Type.Q8_0),),
    "q2": (Types(Type.IQ2_XXS, Type.Q2_K, Type.Q8_0),),
    "mxfp4": (Types(Type.MXFP4, Type.MXFP4, Type.Q8_0),),
    "mixed": (
        Types(Type.IQ2_XXS, Type.Q2_K, Type.Q8_0),
        Types(Type.Q4_K, Type.Q4_K, Type.Q4_K),
        Types(Type.MXFP4, Type.MXFP4, Type.BF16, Type.BF16),
        Types(Type.Q8_0, Type.Q8_0, Type.F16, Type.F32),
        Types(Type.Q6_K, Type.Q5_K, Type.Q4_0),
        Types(Type.BF16, Type.F16, Type.Q4_1, Type.Q8_0),
    ),
}
"""Block formats by recipe: one entry for each layer, in turn."""

_ROUNDED = ("routed", "dense", "light", "embed", "table", "norm")

# Names outside the stages, by spelling; ds4's own are the keys.
_LATE = {
    "main_proj.weight": "dspark.main_proj.weight",
    "main_norm.weight": "dspark.main_norm.weight",
    "norm.weight": "dspark.norm.weight",
    "hc_head_fn.weight": "dspark.hc_head_fn.weight",
    "hc_head_base.weight": "dspark.hc_head_base.weight",
    "hc_head_scale.weight": "dspark.hc_head_scale.weight",
    "markov_head.markov_w1.weight": "dspark.markov_w1.weight",
    "markov_head.markov_w2.weight": "dspark.markov_w2.weight",
    "confidence_head.proj.weight": "dspark.conf_proj.weight",
}
_LLAMA = {
    "main_proj.weight": "fc.weight",
    "main_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "hc_head_fn.weight": "output_hc_fn.weight",
    "hc_head_base.weight": "output_hc_base.weight",
    "hc_head_scale.weight": "output_hc_scale.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
}


def make_pair(folder: Path | str, **options: Any) -> PairPaths:
    """Write `base.gguf` and `support.gguf` into `folder`; options are fields of PairSpec."""
    spec = PairSpec(**options)
    assert spec.quant in QUANTS, spec.quant
    assert spec.spelling in SPELLINGS, spec.spelling
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = PairPaths(base=folder / "base.gguf", support=folder / "support.gguf")
    _write_base(paths.base, spec)
    _write_support(paths.support, spec)
    return paths


def draw(part: Part, seed: int) -> NDArray[np.float32]:
    """The tensor's values, as the golden vectors' README describes."""
    if part.kind == "routed":
        stem, which = part.drawn.rsplit(".", 1)
        names = [f"{stem}.ffn.experts.{e}.{which}.weight" for e in range(part.shape[0])]
        scale = part.gain / math.sqrt(part.shape[-1])
        shape = part.shape[1:]
        values = np.stack(
            [rng_for(seed, name).standard_normal(shape) * scale for name in names]
        )
    else:
        values = rng_for(seed, part.drawn).standard_normal(part.shape) * _scale(part)
        values += 1.0 if part.kind in ("norm", "scale") else 0.0
    singles = values.astype(np.float32)
    return round_bf16(singles) if part.kind in _ROUNDED else singles


def _scale(part: Part) -> float:
    if part.kind in ("dense", "light", "fn"):
        return part.gain / math.sqrt(part.shape[-1])
    return 0.1 if part.kind == "norm" else part.gain


def _add(writer: GGUFWriter, part: Part, name: str, wanted: Type, seed: int) -> None:
    kind = fitting(wanted, part.shape[-1])
    if is_random(kind):
        std = part.gain / math.sqrt(part.shape[-1])
        data: NDArray[Any] = random_blocks(kind, part.shape, std, rng_for(seed, part.drawn))
    else:
        data = encode(draw(part, seed), kind)
    writer.add_tensor(name, data, raw_dtype=kind)


def _finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_base(path: Path, spec: PairSpec) -> None:
    writer = GGUFWriter(path, "deepseek4")
    writer.add_string("general.name", spec.name)
    add_geometry(writer, "deepseek4", spec, len(spec.ratios))
    add_target_keys(writer, spec)
    add_vocab(writer, make_vocab(spec.vocab, spec.end_id))
    if spec.variant:
        writer.add_string("deepseek4.checkpoint_variant", spec.variant)
    types = TYPES[spec.quant]
    for part, layer in base_parts(spec):
        _add(writer, part, part.stored, types[max(layer, 0) % len(types)].of(part), spec.seed)
    for layer in range(min(spec.n_hash, len(spec.ratios))):
        writer.add_tensor(f"blk.{layer}.ffn_gate_tid2eid.weight", _expert_ids(spec, layer))
    _finish(writer)


def _expert_ids(spec: PairSpec, layer: int) -> NDArray[np.int32]:
    rng = rng_for(spec.seed, f"layers.{layer}.ffn.gate.tid2eid")
    rows = [rng.permutation(spec.n_experts)[: spec.topk] for _ in range(spec.vocab)]
    return np.stack(rows).astype(np.int32)


def add_geometry(writer: GGUFWriter, prefix: str, spec: PairSpec, n_layers: int) -> None:
    """The keys of a block's sizes, which target and llama's draft module share."""
    integers = {
        "block_count": n_layers,
        "embedding_length": spec.size("dim"),
        "context_length": spec.ctx,
        "attention.head_count": spec.heads,
        "attention.head_count_kv": 1,
        "attention.key_length": spec.head_dim,
        "attention.value_length": spec.head_dim,
        "rope.dimension_count": spec.rope_dim,
        "attention.q_lora_rank": spec.size("q_lora"),
        "attention.output_lora_rank": spec.size("o_lora"),
        "attention.output_group_count": spec.n_groups,
        "expert_count": spec.n_experts,
        "expert_used_count": spec.topk,
        "expert_feed_forward_length": spec.size("expert_dim"),
        "expert_shared_count": spec.n_shared,
        "attention.sliding_window": spec.window,
        "hyper_connection.count": spec.n_streams,
        "hyper_connection.sinkhorn_iterations": spec.sinkhorn_rounds,
    }
    for key, value in integers.items():
        writer.add_uint32(f"{prefix}.{key}", value)
    floats = {
        "hyper_connection.epsilon": 1e-6,
        "rope.freq_base": 10000.0,
        "expert_weights_scale": spec.expert_scale,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    for key, number in floats.items():
        writer.add_float32(f"{prefix}.{key}", number)
    writer.add_bool(f"{prefix}.expert_weights_norm", True)
    writer.add_array(f"{prefix}.swiglu_clamp_exp", [spec.swiglu_limit] * n_layers)


def add_target_keys(writer: GGUFWriter, spec: PairSpec) -> None:
    """The keys that only a target has."""
    integers = {
        "vocab_size": spec.vocab,
        "hash_layer_count": min(spec.n_hash, len(spec.ratios)),
        "attention.indexer.head_count": spec.index_heads,
        "attention.indexer.key_length": spec.index_dim,
        "attention.indexer.top_k": spec.index_topk,
        "rope.scaling.original_context_length": spec.rope_original_ctx,
    }
    for key, value in integers.items():
        writer.add_uint32(f"deepseek4.{key}", value)
    floats = {
        "rope.scaling.factor": spec.rope_factor,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
        "attention.compress_rope_freq_base": 160000.0,
    }
    for key, number in floats.items():
        writer.add_float32(f"deepseek4.{key}", number)
    writer.add_array("deepseek4.attention.compress_ratios", list(spec.ratios))


def add_vocab(writer: GGUFWriter, vocab: Vocab) -> None:
    """The keys of the tokenizer."""
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "joyai-llm")
    writer.add_array("tokenizer.ggml.tokens", vocab.tokens)
    writer.add_array("tokenizer.ggml.token_type", vocab.types)
    writer.add_array("tokenizer.ggml.merges", vocab.merges)


def _write_support(path: Path, spec: PairSpec) -> None:
    writer = GGUFWriter(path, "dflash" if spec.spelling == "llama" else "deepseek4-dspark")
    writer.add_string("general.name", f"{spec.name} DSpark support")
    variant = spec.variant if spec.support_variant is None else spec.support_variant
    if variant:
        writer.add_string("deepseek4.checkpoint_variant", variant)
    _SUPPORT_KEYS[spec.spelling](writer, spec)
    types = TYPES[spec.quant]
    for part, stage in support_parts(spec):
        name, shape = _spelled(part.stored, stage, spec.spelling), part.shape
        if name == "conf_proj.weight":  # this container drops the dimension of one row
            shape = part.shape[1:]
        _add(
            writer,
            dataclasses.replace(part, shape=shape),
            name,
            types[stage % len(types)].of(part),
            spec.seed,
        )
    _finish(writer)


def _spelled(stored: str, stage: int, spelling: str) -> str:
    suffix = stored.removeprefix(f"mtp.{stage}.")
    if spelling == "late":
        return _LATE.get(suffix, f"dspark.{stage}.{suffix}")
    return _LLAMA.get(suffix, f"blk.{stage}.{suffix}") if spelling == "llama" else stored


def add_ds4_keys(writer: GGUFWriter, spec: PairSpec) -> None:
    """The keys of a support file as ds4 publishes it."""
    writer.add_uint32("dspark.block_size", spec.block_size)
    writer.add_uint32("dspark.markov_rank", spec.markov_rank)
    writer.add_uint32("dspark.noise_token_id", spec.noise)
    writer.add_uint32("dspark.stage_count", spec.n_stages)
    writer.add_uint32("dspark.n_layers", spec.n_stages)
    writer.add_array("dspark.target_layer_ids", list(spec.captured))


def _add_late_keys(writer: GGUFWriter, spec: PairSpec) -> None:
    writer.add_uint32("deepseek4.dspark.block_size", spec.block_size)
    writer.add_uint32("deepseek4.dspark.markov_rank", spec.markov_rank)
    writer.add_uint32("deepseek4.dspark.noise_token_id", spec.noise)
    writer.add_uint32("deepseek4.dspark.layer_count", spec.n_stages)
    writer.add_uint32("deepseek4.dspark.expert_count", spec.n_experts)
    writer.add_array("deepseek4.dspark.target_layers", list(spec.captured))


def _add_llama_keys(writer: GGUFWriter, spec: PairSpec) -> None:
    add_geometry(writer, "dflash", spec, spec.n_stages)
    writer.add_uint32("dflash.hash_layer_count", 0)
    writer.add_array("dflash.attention.compress_ratios", [0] * spec.n_stages)
    writer.add_uint32("dflash.block_size", spec.block_size)
    writer.add_array("dflash.target_layers", [layer + 1 for layer in spec.captured])
    writer.add_uint32("tokenizer.ggml.mask_token_id", spec.noise)


_SUPPORT_KEYS = {"ds4": add_ds4_keys, "late": _add_late_keys, "llama": _add_llama_keys}


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for field in dataclasses.fields(PairSpec):
        flag = "--" + field.name.replace("_", "-")
        if isinstance(field.default, tuple):
            parser.add_argument(flag, type=_integers, default=field.default)
        else:
            kind = str if field.default is None else type(field.default)
            parser.add_argument(flag, type=kind, default=field.default)
    return parser.parse_args(argv)


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def main(argv: Sequence[str] | None = None) -> None:
    """Make a pair and print where it is."""
    options = vars(_parse(argv))
    paths: Iterable[Path] = dataclasses.astuple(make_pair(options.pop("out"), **options))
    for path in paths:
        sys.stdout.write(f"{path}  {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
