from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.values import ARRAY, STRING
from ds4chat.model.config import BlockConfig, TargetConfig
from ds4chat.model.metadata import read_target_config
from tests.gguf_sketch import BOOL, F32, I32, I64, U8, U32, Array, Sketch
from tests.make_pair import make_pair

P = "deepseek4."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Sketch:
    folder = tmp_path_factory.mktemp("pair")
    sketch = Sketch.read(make_pair(folder, ratios=(0, 4, 128)).base)
    sketch.tensors = {"token_embd.weight": sketch.tensors["token_embd.weight"]}
    return sketch


def changed(base: Sketch, *drop: str, **put: Any) -> Sketch:
    keys = {key: value for key, value in base.keys.items() if key not in drop}
    return replace(base, keys=keys | {name.replace("__", "."): v for name, v in put.items()})


def read(sketch: Sketch, path: Path) -> TargetConfig:
    with GgufFile.open(sketch.write(path)) as gguf:
        return read_target_config(gguf)


def refusal(sketch: Sketch, path: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        read(sketch, path)
    return caught.value


def test_every_size_is_read_from_the_file(tmp_path: Path) -> None:
    sizes = {
        "dim": 96,
        "heads": 6,
        "head_dim": 192,
        "rope_dim": 64,
        "q_lora": 48,
        "n_groups": 3,
    }
    sizes |= {"o_lora": 24, "window": 64, "n_experts": 5, "topk": 2, "expert_dim": 40}
    sizes |= {"n_shared": 2, "n_streams": 2, "sinkhorn_rounds": 7, "index_heads": 3}
    sizes |= {"index_dim": 64, "index_topk": 9, "vocab": 400, "ctx": 2048, "n_hash": 1}
    sizes |= {"rope_original_ctx": 512}
    paths = make_pair(
        tmp_path,
        ratios=(128, 4),
        expert_scale=2.5,
        swiglu_limit=7.0,
        rope_factor=4.0,
        name="n",
        **sizes,
    )
    with GgufFile.open(paths.base) as gguf:
        config = read_target_config(gguf)
    near = float(np.float32(1e-6))
    assert config == TargetConfig(
        name="n",
        block=BlockConfig(
            dim=96,
            n_heads=6,
            head_dim=192,
            rope_dim=64,
            q_lora=48,
            n_groups=3,
            o_lora=24,
            window=64,
            n_experts=5,
            n_experts_used=2,
            expert_dim=40,
            n_shared=2,
            expert_scale=2.5,
            swiglu_limit=7.0,
            n_streams=2,
            sinkhorn_rounds=7,
            hc_eps=near,
            rms_eps=near,
            rope_base=10000.0,
        ),
        n_layers=2,
        n_vocab=400,
        compress_ratios=(128, 4),
        n_hash_layers=1,
        index_heads=3,
        index_dim=64,
        index_topk=9,
        compress_rope_base=160000.0,
        rope_factor=4.0,
        rope_original_ctx=512,
        rope_beta_fast=32.0,
        rope_beta_slow=1.0,
        ctx_trained=2048,
    )


def test_integer_widths_and_extra_entries_do_not_matter(base: Sketch, tmp_path: Path) -> None:
    want = read(base, tmp_path / "a.gguf")
    put = {
        "deepseek4__embedding_length": (I64, 64),
        "deepseek4__hyper_connection.count": (U8, 4),
        "deepseek4__rope.freq_base": (U32, 10000),
        "deepseek4__attention.compress_ratios": (ARRAY, Array(U32, [0, 4, 128, 0, 77])),
        "deepseek4__swiglu_clamp_exp": (ARRAY, Array(F32, [2.0, 2.0, 2.0, 9.0])),
    }
    assert read(changed(base, **put), tmp_path / "b.gguf") == want


def test_what_late_files_leave_out_is_derived(base: Sketch, tmp_path: Path) -> None:
    drop = (
        "rope.scaling.original_context_length",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
        "vocab_size",
        "context_length",
        "attention.value_length",
    )
    config = read(changed(base, *(P + key for key in drop)), tmp_path / "a.gguf")
    assert config.rope_original_ctx == 65536
    assert (config.rope_beta_fast, config.rope_beta_slow) == (32.0, 1.0)
    assert config.n_vocab == 512
    assert config.ctx_trained == 16 * 65536


def test_a_nameless_file_is_called_by_its_file_name(base: Sketch, tmp_path: Path) -> None:
    assert read(changed(base, "general.name"), tmp_path / "some.gguf").name == "some"


def test_all_missing_keys_are_named_at_once(base: Sketch, tmp_path: Path) -> None:
    drop = [P + key for key in ("block_count", "expert_count", "swiglu_clamp_exp")]
    message = refusal(changed(base, *drop), tmp_path / "a.gguf").message
    assert all(f"key {key} is missing" in message for key in drop)
    assert "3 problems" in message


def test_each_required_key_is_required(base: Sketch, tmp_path: Path) -> None:
    optional = {"rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast"} | {
        "rope.scaling.yarn_beta_slow",
        "vocab_size",
        "context_length",
        "attention.value_length",
    }
    required = [key for key in base.keys if key.startswith(P) and key[len(P) :] not in optional]
    assert len(required) == 29
    for key in required:
        assert (
            f"key {key} is missing" in refusal(changed(base, key), tmp_path / "a.gguf").message
        )


BAD: dict[str, tuple[str, tuple[int, Any], str]] = {
    "kv heads": ("attention.head_count_kv", (U32, 2), "is 2; 1 wanted"),
    "value length": ("attention.value_length", (U32, 64), "is 64; 128 wanted"),
    "rope": ("rope.dimension_count", (U32, 32), "a positive multiple of 64 wanted"),
    "all rotary": ("rope.dimension_count", (U32, 128), "a positive multiple of 64 wanted"),
    "odd rope": ("rope.dimension_count", (U32, 63), "an even number wanted"),
    "indexer": ("attention.indexer.key_length", (U32, 96), "a power of two from 32 wanted"),
    "small indexer": ("attention.indexer.key_length", (U32, 32), "at least rope.dimension"),
    "groups": ("attention.output_group_count", (U32, 3), "a multiple of"),
    "expert groups": ("expert_group_count", (U32, 8), "is 8; 0 wanted"),
    "used groups": ("expert_group_used_count", (U32, 4), "is 4; 0 wanted"),
    "norm off": ("expert_weights_norm", (BOOL, False), "is false; true wanted"),
    "norm type": ("expert_weights_norm", (U32, 1), "stored as UINT32; true wanted"),
    "used experts": ("expert_used_count", (U32, 9), "at most expert_count 8 wanted"),
    "hash layers": ("hash_layer_count", (U32, 4), "at most block_count 3 wanted"),
    "ratio": (
        "attention.compress_ratios",
        (ARRAY, Array(I32, [0, 4, 64])),
        "only 0, 4 and 128 wanted",
    ),
    "few ratios": ("attention.compress_ratios", (ARRAY, Array(I32, [0, 4])), "at least 3"),
    "clamps": ("swiglu_clamp_exp", (ARRAY, Array(F32, [2, 2, 3])), "from layer to layer"),
    "no layers": ("block_count", (U32, 0), "is 0; 1 to 1024 wanted"),
    "absurd layers": ("block_count", (U32, 1 << 31), "1 to 1024 wanted"),
    "nan": ("rope.freq_base", (F32, float("nan")), "a positive number wanted"),
    "word": ("embedding_length", (STRING, "64"), "stored as STRING"),
    "vocabulary": ("vocab_size", (U32, 513), "has 512 entries; 513 wanted"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_unusable_value_is_refused(base: Sketch, case: str, tmp_path: Path) -> None:
    key, value, words = BAD[case]
    message = refusal(
        changed(base, **{P.replace(".", "__") + key: value}), tmp_path / "a.gguf"
    ).message
    assert words in message
    assert key in message


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("deepseek41", "V4.1"),
        ("deepseek41-moe", "V4.1"),
        ("deepseek4-dspark", "support file"),
        ("dflash", "drafter"),
        ("llama", "'llama'; 'deepseek4' wanted"),
        ("a\x1b[m", "'a\\x1b[m'"),
    ],
)
def test_another_architecture_is_refused_by_name(
    base: Sketch, architecture: str, words: str, tmp_path: Path
) -> None:
    sketch = changed(base, general__architecture=(STRING, architecture))
    error = refusal(sketch, tmp_path / "a.gguf")
    assert words in error.message
    assert error.hint
    assert "\x1b" not in error.message


def test_a_file_without_architecture(base: Sketch, tmp_path: Path) -> None:
    assert "not given" in refusal(changed(base, "general.architecture"), tmp_path / "a").message
