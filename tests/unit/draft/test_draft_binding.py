from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ds4chat.draft.binding import bind_draft
from ds4chat.draft.metadata import read_draft_config
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.model.metadata import read_target_config
from tests.gguf_sketch import Sketch, Tensor
from tests.make_pair import PairPaths, make_pair


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PairPaths]:
    folder = tmp_path_factory.mktemp("pairs")
    return {
        name: make_pair(folder / name, spelling=name, quant="q8_0")
        for name in ("ds4", "late", "llama")
    }


def values(support: Path, base: Path) -> dict[str, np.ndarray]:
    with GgufFile.open(base) as model, GgufFile.open(support) as gguf:
        target = read_target_config(model)
        config = read_draft_config(gguf, target, model).config
        bound = bind_draft(gguf, config, target)
        return {name: np.array(gguf.floats(entry)) for name, entry in bound.items()}


def refusal(sketch: Sketch, base: Path, path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        values(sketch.write(path), base)
    assert caught.value.hint
    return caught.value.message


def test_published_names_are_kept(pairs: dict[str, PairPaths]) -> None:
    bound = values(pairs["ds4"].support, pairs["ds4"].base)
    with GgufFile.open(pairs["ds4"].support) as gguf:
        assert set(bound) == set(gguf.tensors)
    assert len(bound) == 81


@pytest.mark.parametrize("spelling", ["late", "llama"])
def test_other_spellings_bind_to_the_same_tensors(
    pairs: dict[str, PairPaths], spelling: str
) -> None:
    want = values(pairs["ds4"].support, pairs["ds4"].base)
    got = values(pairs[spelling].support, pairs[spelling].base)
    assert set(got) == set(want)
    for name, value in want.items():
        assert got[name].shape == value.shape, name
        assert np.array_equal(got[name], value), name


def test_one_stage_is_first_and_last(tmp_path: Path) -> None:
    paths = make_pair(tmp_path, n_stages=1, target_layers=(2, 5), ratios=(0, 4, 128, 0, 4, 0))
    bound = values(paths.support, paths.base)
    assert len(bound) == 24 + 2 + 7
    assert bound["mtp.0.main_proj.weight"].shape == (64, 128)


@pytest.mark.parametrize("spelling", ["ds4", "late", "llama"])
def test_each_tensor_is_required(
    pairs: dict[str, PairPaths], spelling: str, tmp_path: Path
) -> None:
    base = pairs[spelling].base
    names = list(Sketch.read(pairs[spelling].support).tensors)
    for name in names[:24] + names[-9:]:
        sketch = Sketch.read(pairs[spelling].support)
        del sketch.tensors[name]
        message = refusal(sketch, base, tmp_path / "s.gguf")
        assert f"tensor {name} is missing" in message or f"no matrix {name}" in message


def test_other_dimensions_are_listed(pairs: dict[str, PairPaths], tmp_path: Path) -> None:
    wide = make_pair(tmp_path, dim=96, vocab=400, ratios=(0, 0, 0, 0, 4, 0))
    with pytest.raises(ModelFileError) as caught:
        values(wide.support, pairs["ds4"].base)
    message = caught.value.message
    assert "tensor mtp.{0-2}.attn_kv.weight: shape [128, 96], [128, 64] wanted" in message
    assert "markov_w1.weight: shape [400, 16], [512, 16] wanted" in message
    assert "main_proj.weight: shape [96, 288], [64, 192] wanted" in message


@pytest.mark.parametrize("spelling", ["ds4", "llama"])
def test_a_confidence_bias_is_bound_if_it_is_there(
    pairs: dict[str, PairPaths], spelling: str, tmp_path: Path
) -> None:
    name = {"ds4": "mtp.2.confidence_head.proj.bias", "llama": "conf_proj.bias"}[spelling]
    sketch = Sketch.read(pairs[spelling].support)
    sketch.tensors[name] = Tensor((1,), 0, np.array([0.5], "<f4").tobytes())
    bound = values(sketch.write(tmp_path / "s.gguf"), pairs[spelling].base)
    assert bound["mtp.2.confidence_head.proj.bias"].tolist() == [0.5]
    assert bound["mtp.2.confidence_head.proj.weight"].shape == (1, 80)
