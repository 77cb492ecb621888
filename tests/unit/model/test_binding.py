from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ds4chat.cli.bench_open import FLASH
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.model.binding import Kind, bind_target, target_layout
from ds4chat.model.metadata import read_target_config
from tests.gguf_sketch import Sketch, Tensor
from tests.make_pair import make_pair


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Sketch:
    folder = tmp_path_factory.mktemp("pair")
    return Sketch.read(make_pair(folder, ratios=(0, 4, 128, 0), n_hash=2).base)


def bind(sketch: Sketch, path: Path) -> set[str]:
    with GgufFile.open(sketch.write(path)) as gguf:
        return set(bind_target(gguf, read_target_config(gguf)))


def refusal(sketch: Sketch, path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        bind(sketch, path)
    assert caught.value.hint
    return caught.value.message


def without(base: Sketch, *names: str) -> Sketch:
    return replace(base, tensors={n: t for n, t in base.tensors.items() if n not in names})


def test_every_tensor_is_bound(base: Sketch, tmp_path: Path) -> None:
    assert bind(base, tmp_path / "a.gguf") == set(base.tensors)


def test_flash_has_the_published_number_of_tensors() -> None:
    places = list(target_layout(FLASH))
    assert sum(not place.is_optional for place in places) == 1328
    shapes = {place.name: place.shape for place in places}
    assert shapes["blk.2.attn_compressor_kv.weight"] == (1024, 4096)
    assert shapes["blk.3.attn_compressor_ape.weight"] == (128, 512)
    assert shapes["blk.2.indexer.attn_q_b.weight"] == (8192, 1024)
    assert shapes["blk.42.attn_output_a.weight"] == (8192, 4096)
    assert shapes["blk.0.hc_attn_fn.weight"] == (24, 16384)
    assert shapes["blk.0.ffn_gate_tid2eid.weight"] == (129280, 6)


@pytest.mark.parametrize("quant", ["f16", "bf16", "q8_0", "q4_k", "q2", "mxfp4", "mixed"])
def test_every_format_is_accepted(quant: str, tmp_path: Path) -> None:
    paths = make_pair(tmp_path, ratios=(0, 4, 128), quant=quant)
    with GgufFile.open(paths.base) as gguf:
        bound = bind_target(gguf, read_target_config(gguf))
        assert bound == dict(gguf.tensors)


def test_each_tensor_is_required_except_a_hash_layers_bias(
    base: Sketch, tmp_path: Path
) -> None:
    one_of_each = {
        name.split(".", 2)[-1] if name.startswith("blk.") else name: name
        for name in base.tensors
    }
    assert len(one_of_each) == 6 + 24 + 1 + 4 + 6
    for name in one_of_each.values():
        assert f"tensor {name} is missing" in refusal(without(base, name), tmp_path / "a.gguf")


def test_a_hash_layer_may_have_a_bias(base: Sketch, tmp_path: Path) -> None:
    bias = Tensor((8,), 0, bytes(32))
    tensors = base.tensors | {"blk.1.exp_probs_b.bias": bias}
    assert "blk.1.exp_probs_b.bias" in bind(replace(base, tensors=tensors), tmp_path / "a.gguf")


def test_a_renamed_tensor_is_guessed(base: Sketch, tmp_path: Path) -> None:
    tensors = dict(base.tensors)
    tensors["blk.1.attn_qa.weight"] = tensors.pop("blk.1.attn_q_a.weight")
    message = refusal(replace(base, tensors=tensors), tmp_path / "a.gguf")
    assert "blk.1.attn_q_a.weight is missing (the file has blk.1.attn_qa.weight)" in message


def test_missing_layers_are_folded(base: Sketch, tmp_path: Path) -> None:
    names = [name for name in base.tensors if name.startswith(("blk.0.", "blk.1.", "blk.3."))]
    message = refusal(without(base, *names), tmp_path / "a.gguf")
    assert "tensor blk.{0-1,3}.attn_kv.weight is missing" in message
    assert "tensor blk.3.exp_probs_b.bias is missing" in message


def test_wrong_shapes_and_types_come_with_both_values(base: Sketch, tmp_path: Path) -> None:
    tensors = dict(base.tensors)
    tensors["blk.0.attn_kv.weight"] = Tensor((64, 64), 0, bytes(64 * 64 * 4))
    tensors["blk.1.attn_norm.weight"] = Tensor((64,), 8, bytes(2 * 34))
    tensors["blk.1.ffn_gate_inp.weight"] = Tensor((8, 64), 26, bytes(8 * 64 * 4))
    tensors["blk.2.attn_q_a.weight"] = Tensor((32, 64), 20, bytes(2 * 32 * 18))
    tensors["blk.2.ffn_norm.weight"] = Tensor((64,), 99, b"")
    message = refusal(replace(base, tensors=tensors), tmp_path / "a.gguf")
    assert "tensor blk.0.attn_kv.weight: shape [64, 64], [128, 64] wanted" in message
    assert "tensor blk.1.attn_norm.weight: type Q8_0, one of BF16, F16, F32 wanted" in message
    assert "tensor blk.1.ffn_gate_inp.weight: type I32, one of" in message
    assert "tensor blk.2.attn_q_a.weight: type IQ4_NL, one of" in message
    assert "tensor blk.2.ffn_norm.weight: type type 99, one of" in message
    assert "5 problems" in message


@pytest.mark.parametrize(("value", "shown"), [(8, "from 0 to 8"), (-1, "from -1 to")])
def test_expert_ids_out_of_range_are_refused(
    base: Sketch, value: int, shown: str, tmp_path: Path
) -> None:
    name = "blk.1.ffn_gate_tid2eid.weight"
    ids = np.frombuffer(base.tensors[name].data, dtype="<i4").copy()
    ids[77] = value
    tensors = base.tensors | {name: replace(base.tensors[name], data=ids.tobytes())}
    assert shown in refusal(replace(base, tensors=tensors), tmp_path / "a.gguf")


def test_kinds_do_not_accept_ids_as_weights() -> None:
    assert "I32" not in Kind.MATRIX.value
    assert Kind.VECTOR.value < Kind.MATRIX.value
