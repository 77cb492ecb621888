"""Sizes and weights of a GGUF pair, read with the gguf package only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = dict[str, NDArray[Any]]

_STAGE_NAMES = {
    "main_proj.weight": 0,
    "main_norm.weight": 0,
    "norm.weight": -1,
    "hc_head_fn.weight": -1,
    "hc_head_base.weight": -1,
    "hc_head_scale.weight": -1,
    "markov_head.markov_w1.weight": -1,
    "markov_head.markov_w2.weight": -1,
    "confidence_head.proj.weight": -1,
}
"""Tensors outside the stages: the stage that ds4's spelling puts them under."""

_LLAMA_NAMES = {
    "fc.weight": "main_proj.weight",
    "enc.output_norm.weight": "main_norm.weight",
    "output_norm.weight": "norm.weight",
    "output_hc_fn.weight": "hc_head_fn.weight",
    "output_hc_base.weight": "hc_head_base.weight",
    "output_hc_scale.weight": "hc_head_scale.weight",
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
}
_LATE_NAMES = {
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Every number of the architecture, from the two files."""

    ratios: tuple[int, ...]
    heads: int
    head_dim: int
    rope_dim: int
    groups: int
    window: int
    experts_used: int
    expert_scale: float
    clamp: float
    streams: int
    sinkhorn_rounds: int
    hc_eps: float
    rms_eps: float
    rope_base: float
    hash_layers: int
    index_heads: int
    index_dim: int
    index_topk: int
    compress_base: float
    yarn_factor: float
    yarn_context: int
    yarn_fast: float
    yarn_slow: float
    block: int
    stages: int
    noise: int
    captured: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePair:
    """Sizes, and weights as float64 under the file's names (the support file's in ds4's)."""

    sizes: Sizes
    base: Weights
    support: Weights

    def layer(self, index: int) -> Weights:
        """The tensors of a target layer, without prefix."""
        return _under(self.base, f"blk.{index}.")

    def stage(self, index: int) -> Weights:
        """The tensors of a draft stage, without prefix."""
        return _under(self.support, f"mtp.{index}.")


def read_pair(base: Path, support: Path) -> ReferencePair:
    """Read both files whole."""
    base_keys, base_weights = _read(base)
    support_keys, support_weights = _read(support)
    n_stages = _first(
        support_keys, "dspark.stage_count", "deepseek4.dspark.layer_count", "dflash.block_count"
    )
    named = {_ds4_name(name, n_stages): value for name, value in support_weights.items()}
    sizes = _sizes(base_keys, support_keys, n_stages)
    return ReferencePair(sizes=sizes, base=base_weights, support=named)


def _read(path: Path) -> tuple[dict[str, Any], Weights]:
    reader = gguf.GGUFReader(path)
    keys = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("tokenizer.") or name == "tokenizer.ggml.mask_token_id"
    }
    return keys, {t.name: _values(t) for t in reader.tensors}


def _values(tensor: Any) -> NDArray[Any]:
    if tensor.tensor_type == gguf.GGMLQuantizationType.I32:
        return np.array(tensor.data)
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return np.asarray(values, dtype=np.float64)


def _first(keys: Mapping[str, Any], *names: str) -> Any:
    return next(keys[name] for name in names if name in keys)


def _ds4_name(name: str, n_stages: int) -> str:
    if name.startswith("mtp."):
        return name
    if name.startswith("dspark."):
        plain = name.removeprefix("dspark.")
        plain = _LATE_NAMES.get(plain, plain)
    else:
        plain = _LLAMA_NAMES.get(name, name.removeprefix("blk."))
    if plain in _STAGE_NAMES:
        return f"mtp.{_STAGE_NAMES[plain] % n_stages}.{plain}"
    return f"mtp.{plain}"


def _sizes(keys: dict[str, Any], support: dict[str, Any], n_stages: int) -> Sizes:
    def get(name: str) -> Any:
        return keys[f"deepseek4.{name}"]

    if "dflash.target_layers" in support:
        captured = tuple(i - 1 for i in support["dflash.target_layers"])
    else:
        captured = tuple(
            _first(support, "dspark.target_layer_ids", "deepseek4.dspark.target_layers")
        )
    return Sizes(
        ratios=tuple(get("attention.compress_ratios")),
        heads=get("attention.head_count"),
        head_dim=get("attention.key_length"),
        rope_dim=get("rope.dimension_count"),
        groups=get("attention.output_group_count"),
        window=get("attention.sliding_window"),
        experts_used=get("expert_used_count"),
        expert_scale=get("expert_weights_scale"),
        clamp=get("swiglu_clamp_exp")[0],
        streams=get("hyper_connection.count"),
        sinkhorn_rounds=get("hyper_connection.sinkhorn_iterations"),
        hc_eps=get("hyper_connection.epsilon"),
        rms_eps=get("attention.layer_norm_rms_epsilon"),
        rope_base=get("rope.freq_base"),
        hash_layers=get("hash_layer_count"),
        index_heads=get("attention.indexer.head_count"),
        index_dim=get("attention.indexer.key_length"),
        index_topk=get("attention.indexer.top_k"),
        compress_base=get("attention.compress_rope_freq_base"),
        yarn_factor=get("rope.scaling.factor"),
        yarn_context=get("rope.scaling.original_context_length"),
        yarn_fast=get("rope.scaling.yarn_beta_fast"),
        yarn_slow=get("rope.scaling.yarn_beta_slow"),
        block=_first(
            support, "dspark.block_size", "deepseek4.dspark.block_size", "dflash.block_size"
        ),
        stages=n_stages,
        noise=_first(
            support,
            "dspark.noise_token_id",
            "deepseek4.dspark.noise_token_id",
            "tokenizer.ggml.mask_token_id",
        ),
        captured=captured,
    )


def _under(weights: Weights, prefix: str) -> Weights:
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
