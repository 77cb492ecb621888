"""From metadata keys to `TargetConfig`. Sizes come from the file; nothing is assumed.

Keys: `deepseek4.*` as published files carry them. All problems are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.show import printable, problem_text, shown_path
from ds4chat.model.config import BlockConfig, TargetConfig

ARCHITECTURE = "deepseek4"
RATIOS = (0, 4, 128)
_KV_GROUP = 64  # channels that share one FP8 exponent
_FP4_GROUP = 32  # indexer channels that share one FP4 exponent
MAX_LAYERS = 1024
_MAX_CTX = (1 << 31) - 1

# field of BlockConfig: key after the architecture's prefix, largest sane value
BLOCK_INTEGERS: Mapping[str, tuple[str, int]] = {
    "dim": ("embedding_length", 1 << 20),
    "n_heads": ("attention.head_count", 1 << 14),
    "head_dim": ("attention.key_length", 1 << 16),
    "rope_dim": ("rope.dimension_count", 1 << 16),
    "q_lora": ("attention.q_lora_rank", 1 << 20),
    "n_groups": ("attention.output_group_count", 1 << 14),
    "o_lora": ("attention.output_lora_rank", 1 << 20),
    "window": ("attention.sliding_window", 1 << 12),  # no tensor has its size: rings do
    "n_experts": ("expert_count", 1 << 16),
    "n_experts_used": ("expert_used_count", 1 << 16),
    "expert_dim": ("expert_feed_forward_length", 1 << 20),
    "n_shared": ("expert_shared_count", 1 << 10),
    "n_streams": ("hyper_connection.count", 64),
    "sinkhorn_rounds": ("hyper_connection.sinkhorn_iterations", 1000),
}
BLOCK_NUMBERS: Mapping[str, str] = {
    "expert_scale": "expert_weights_scale",
    "hc_eps": "hyper_connection.epsilon",
    "rms_eps": "attention.layer_norm_rms_epsilon",
    "rope_base": "rope.freq_base",
}
_TARGET_INTEGERS: Mapping[str, tuple[str, int]] = {
    "n_layers": ("block_count", MAX_LAYERS),
    "index_heads": ("attention.indexer.head_count", 1 << 14),
    "index_dim": ("attention.indexer.key_length", 1 << 16),
    "index_topk": ("attention.indexer.top_k", 1 << 20),
}
# Late loaders tolerate files without these; the values are those of every published file.
_TARGET_NUMBERS: Mapping[str, tuple[str, float | None]] = {
    "compress_rope_base": ("attention.compress_rope_freq_base", None),
    "rope_factor": ("rope.scaling.factor", None),
    "rope_beta_fast": ("rope.scaling.yarn_beta_fast", 32.0),
    "rope_beta_slow": ("rope.scaling.yarn_beta_slow", 1.0),
}
_ORIGINAL_CTX = 65536

_OTHER_ARCHITECTURES = {
    "deepseek41": (
        "DeepSeek V4.1 (deepseek41) is another architecture",
        "Use a DeepSeek-V4-Flash file: its architecture is deepseek4.",
    ),
    "deepseek4-dspark": (
        "a DSpark support file, not a model",
        "Name the model file, and this one as its support file.",
    ),
    "dflash": (
        "a drafter for speculative decoding, not a model",
        "Name the model file, and this one as its support file.",
    ),
}

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """A rule over values that have been read; skipped when one of `needs` is missing."""

    needs: tuple[str, ...]
    holds: Callable[[Values], bool]
    message: str  # formatted with the values


BLOCK_CHECKS: tuple[Check, ...] = (
    Check(
        ("head_dim", "rope_dim"),
        lambda v: (
            v["head_dim"] > v["rope_dim"] and (v["head_dim"] - v["rope_dim"]) % _KV_GROUP == 0
        ),
        "attention.key_length {head_dim} minus rope.dimension_count {rope_dim}: "
        "a positive multiple of 64 wanted",
    ),
    Check(
        ("rope_dim",),
        lambda v: v["rope_dim"] % 2 == 0,
        "rope.dimension_count {rope_dim}: an even number wanted",
    ),
    Check(
        ("n_heads", "n_groups"),
        lambda v: v["n_heads"] % v["n_groups"] == 0,
        "attention.head_count {n_heads}: a multiple of attention.output_group_count "
        "{n_groups} wanted",
    ),
    Check(
        ("n_experts", "n_experts_used"),
        lambda v: v["n_experts_used"] <= v["n_experts"],
        "expert_used_count {n_experts_used}: at most expert_count {n_experts} wanted",
    ),
)

_TARGET_CHECKS: tuple[Check, ...] = (
    Check(
        ("index_dim",),
        lambda v: v["index_dim"] >= _FP4_GROUP and v["index_dim"] & (v["index_dim"] - 1) == 0,
        "attention.indexer.key_length {index_dim}: a power of two from 32 wanted",
    ),
    Check(
        ("index_dim", "rope_dim"),
        lambda v: v["index_dim"] >= v["rope_dim"],
        "attention.indexer.key_length {index_dim}: at least rope.dimension_count "
        "{rope_dim} wanted",
    ),
    Check(
        ("n_hash_layers", "n_layers"),
        lambda v: v["n_hash_layers"] <= v["n_layers"],
        "hash_layer_count {n_hash_layers}: at most block_count {n_layers} wanted",
    ),
    Check(
        ("compress_ratios",),
        lambda v: set(v["compress_ratios"]) <= set(RATIOS),
        "attention.compress_ratios {compress_ratios}: only 0, 4 and 128 wanted",
    ),
)


def read_target_config(gguf: GgufFile) -> TargetConfig:
    """Read and check the target's sizes.

    Raises:
        ModelFileError: another architecture, or keys missing, mistyped or out of range; the
            message lists all of them.
    """
    keys = KeyReader(gguf.metadata)
    _check_architecture(gguf, keys)
    values = _read_values(gguf, keys)
    run_checks((*BLOCK_CHECKS, *_TARGET_CHECKS), values, keys.problems)
    if keys.problems:
        raise ModelFileError(
            problem_text(gguf.path, keys.problems),
            "The file is damaged or was made by a converter for another program.",
        )
    block = BlockConfig(**{name: values.pop(name) for name in BlockConfig.__slots__})
    return TargetConfig(name=model_name(gguf), block=block, **values)


def model_name(gguf: GgufFile) -> str:
    """`general.name`, or the file's name; fit for a message."""
    name = gguf.metadata.get("general.name")
    return printable(name if isinstance(name, str) and name else gguf.path.stem)


def run_checks(checks: tuple[Check, ...], values: Values, problems: list[str]) -> None:
    """Add a line to `problems` for each check that can be made and fails."""
    problems += [
        check.message.format(**values)
        for check in checks
        if all(name in values for name in check.needs) and not check.holds(values)
    ]


def read_block(
    keys: KeyReader, prefix: str, n_layers: int, fallback: BlockConfig | None = None
) -> Values:
    """Fields of BlockConfig found under `prefix.`; those with a problem are left out.

    Args:
        keys: where to read; problems go there.
        prefix: `deepseek4` or `dflash`.
        n_layers: how many entries a per-layer array must have.
        fallback: values for absent keys; without it an absent key is a problem.
    """
    found: dict[str, int | float | None] = {}
    for name, (key, most) in BLOCK_INTEGERS.items():
        default = getattr(fallback, name) if fallback else None
        found[name] = keys.integer(f"{prefix}.{key}", default=default, most=most)
    for name, key in BLOCK_NUMBERS.items():
        default = getattr(fallback, name) if fallback else None
        found[name] = keys.number(f"{prefix}.{key}", default=default)
    found["swiglu_limit"] = keys.uniform(
        f"{prefix}.swiglu_clamp_exp",
        count=n_layers,
        default=fallback.swiglu_limit if fallback else None,
    )
    _check_fixed(keys, prefix, found["head_dim"], is_strict=fallback is None)
    return _present(found)


def _check_fixed(
    keys: KeyReader, prefix: str, head_dim: int | float | None, *, is_strict: bool
) -> None:
    """Keys whose one supported value is known: they are checked and not kept."""
    size = int(head_dim) if head_dim else None
    kv_default = None if is_strict else 1
    keys.integer(f"{prefix}.attention.head_count_kv", default=kv_default, most=1)
    if size is not None:
        keys.integer(f"{prefix}.attention.value_length", default=size, least=size, most=size)
    for key in ("expert_group_count", "expert_group_used_count"):
        keys.integer(f"{prefix}.{key}", default=0, least=0, most=0)
    if is_strict or f"{prefix}.expert_weights_norm" in keys.metadata:
        keys.flag(f"{prefix}.expert_weights_norm", wanted=True)


def _check_architecture(gguf: GgufFile, keys: KeyReader) -> None:
    found = keys.text("general.architecture")
    if found == ARCHITECTURE:
        return
    shown = f"'{printable(found)}'" if found else "not given"
    what, hint = _OTHER_ARCHITECTURES.get(
        found,
        (
            f"the architecture is {shown}; '{ARCHITECTURE}' wanted",
            "ds4chat runs DeepSeek-V4-Flash only.",
        ),
    )
    if found.startswith("deepseek41"):
        what, hint = _OTHER_ARCHITECTURES["deepseek41"]
    raise ModelFileError(f"{shown_path(gguf.path)}: {what}", hint)


def _read_values(gguf: GgufFile, keys: KeyReader) -> Values:
    found: dict[str, Any] = {}
    for name, (key, most) in _TARGET_INTEGERS.items():
        found[name] = keys.integer(f"{ARCHITECTURE}.{key}", most=most)
    for name, (key, default) in _TARGET_NUMBERS.items():
        found[name] = keys.number(f"{ARCHITECTURE}.{key}", default=default)
    n_layers = found["n_layers"] or 1
    found["n_hash_layers"] = keys.integer(f"{ARCHITECTURE}.hash_layer_count", least=0)
    found["compress_ratios"] = keys.integers(
        f"{ARCHITECTURE}.attention.compress_ratios", count=n_layers
    )
    found["rope_original_ctx"] = keys.integer(
        f"{ARCHITECTURE}.rope.scaling.original_context_length", default=_ORIGINAL_CTX
    )
    found["n_vocab"] = _read_vocab(gguf, keys)
    values = _present(found) | read_block(keys, ARCHITECTURE, n_layers)
    ctx = values.get("rope_factor", 1) * values.get("rope_original_ctx", 1)  # may be infinite
    ctx_trained = keys.integer(
        f"{ARCHITECTURE}.context_length", default=int(min(ctx, _MAX_CTX))
    )
    return values | _present({"ctx_trained": ctx_trained})


def _read_vocab(gguf: GgufFile, keys: KeyReader) -> int | None:
    """The vocabulary's size: its key, else the rows of the embedding; tokens must agree."""
    embedding = gguf.tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding and len(embedding.shape) == 2 else None
    n_vocab = keys.integer(f"{ARCHITECTURE}.vocab_size", default=rows, most=1 << 24)
    n_tokens = gguf.metadata.count("tokenizer.ggml.tokens")
    if n_vocab is not None and n_tokens not in (0, n_vocab):
        keys.problems.append(
            f"key tokenizer.ggml.tokens has {n_tokens} entries; {n_vocab} wanted, "
            f"as {ARCHITECTURE}.vocab_size says"
        )
    return n_vocab


def _present(found: Mapping[str, Any]) -> Values:
    return {name: value for name, value in found.items() if value is not None}
