from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ds4chat.draft.metadata import DraftReading, Spelling, detect_spelling, read_draft_config
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.values import ARRAY, STRING
from ds4chat.model.metadata import read_target_config
from tests.gguf_sketch import I32, I64, U32, Array, Sketch, Tensor
from tests.make_pair import PairPaths, make_pair

Keys = dict[str, tuple[int, Any]]
SPELLINGS = {"ds4": Spelling.DS4, "late": Spelling.LATE, "llama": Spelling.LLAMA}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PairPaths]:
    folder = tmp_path_factory.mktemp("pairs")
    return {name: make_pair(folder / name, spelling=name) for name in SPELLINGS}


def read(support: Path, base: Path) -> DraftReading:
    with GgufFile.open(base) as model, GgufFile.open(support) as gguf:
        return read_draft_config(gguf, read_target_config(model), model)


def changed(path: Path, out: Path, put: Keys, *drop: str) -> Path:
    sketch = Sketch.read(path)
    keys = {key: value for key, value in sketch.keys.items() if key not in drop}
    return replace(sketch, keys=keys | put).write(out)


def refusal(support: Path, base: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        read(support, base)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_three_spellings_say_the_same(pairs: dict[str, PairPaths], spelling: str) -> None:
    reading = read(pairs[spelling].support, pairs[spelling].base)
    config = reading.config
    assert reading.spelling is SPELLINGS[spelling]
    assert reading.warnings == ()
    assert (config.n_stages, config.block_size, config.markov_rank) == (3, 5, 16)
    assert (config.noise_id, config.target_layers) == (511, (3, 4, 5))
    with GgufFile.open(pairs[spelling].base) as model:
        assert config.block == read_target_config(model).block


@pytest.mark.parametrize("prefix", ["deepseek4.dspark.", "deepseek4.dspark_"])
def test_other_prefixes_win_over_the_plain_one(
    pairs: dict[str, PairPaths], prefix: str, tmp_path: Path
) -> None:
    put: Keys = {prefix + "block_size": (I64, 7), prefix + "noise_token_id": (U32, 9)}
    support = changed(pairs["ds4"].support, tmp_path / "s.gguf", put)
    config = read(support, pairs["ds4"].base).config
    assert (config.block_size, config.noise_id, config.markov_rank) == (7, 9, 16)


def test_without_key_and_matrix_the_rank_is_unknown(
    pairs: dict[str, PairPaths], tmp_path: Path
) -> None:
    sketch = Sketch.read(pairs["llama"].support)
    del sketch.tensors["markov_w1.weight"]
    message = refusal(sketch.write(tmp_path / "s.gguf"), pairs["llama"].base).message
    assert "no dflash.markov_rank and no matrix markov_w1.weight" in message


def test_the_rank_can_come_from_the_matrix(pairs: dict[str, PairPaths], tmp_path: Path) -> None:
    drop = "dspark.markov_rank"
    support = changed(pairs["ds4"].support, tmp_path / "s.gguf", {}, drop)
    assert read(support, pairs["ds4"].base).config.markov_rank == 16


def test_stages_are_counted_by_tensors(pairs: dict[str, PairPaths], tmp_path: Path) -> None:
    put: Keys = {"dspark.stage_count": (U32, 2)}
    support = changed(pairs["ds4"].support, tmp_path / "s.gguf", put)
    reading = read(support, pairs["ds4"].base)
    assert reading.config.n_stages == 3
    assert "says 2 stages, the tensors make 3" in reading.warnings[0]


def test_a_stage_number_out_of_all_reason(pairs: dict[str, PairPaths], tmp_path: Path) -> None:
    for name in ("mtp.999999999.attn_kv.weight", "mtp." + "9" * 5000 + ".x"):
        sketch = Sketch.read(pairs["ds4"].support)
        sketch.tensors[name] = Tensor((1,), 0, bytes(4))
        sketch.tensors.pop("mtp.2.norm.weight")
        support = sketch.write(tmp_path / "s.gguf")
        if name.endswith(".x"):
            assert read(support, pairs["ds4"].base).config.n_stages == 3
        else:
            assert "1 to 8 wanted" in refusal(support, pairs["ds4"].base).message


def test_a_stage_may_have_another_number_of_experts(
    pairs: dict[str, PairPaths], tmp_path: Path
) -> None:
    put: Keys = {"deepseek4.dspark.expert_count": (U32, 4)}
    support = changed(pairs["late"].support, tmp_path / "s.gguf", put)
    assert read(support, pairs["late"].base).config.block.n_experts == 4


BAD: dict[str, tuple[str, Keys, str]] = {
    "block 0": ("ds4", {"dspark.block_size": (U32, 0)}, "is 0; 1 to 16 wanted"),
    "block 17": ("ds4", {"dspark.block_size": (U32, 17)}, "is 17; 1 to 16 wanted"),
    "rank 0": ("ds4", {"dspark.markov_rank": (U32, 0)}, "markov_rank is 0"),
    "noise": ("ds4", {"dspark.noise_token_id": (U32, 512)}, "is 512; 0 to 511 wanted"),
    "falling layers": (
        "ds4",
        {"dspark.target_layer_ids": (ARRAY, Array(I32, [3, 5, 4]))},
        "[3, 5, 4]: rising numbers from 0 to 5",
    ),
    "a layer too far": (
        "ds4",
        {"dspark.target_layer_ids": (ARRAY, Array(U32, [3, 4, 6]))},
        "rising numbers from 0 to 5",
    ),
    "the embedding": (
        "llama",
        {"dflash.target_layers": (ARRAY, Array(I32, [0, 4, 5]))},
        "[-1, 3, 4]: rising",
    ),
    "width": ("llama", {"dflash.embedding_length": (U32, 128)}, "the model has 64"),
    "streams": ("llama", {"dflash.hyper_connection.count": (U32, 2)}, "the model has 4"),
    "hash layers": ("llama", {"dflash.hash_layer_count": (U32, 1)}, "is 1; 0 wanted"),
    "compressed": (
        "llama",
        {"dflash.attention.compress_ratios": (ARRAY, Array(I32, [0, 4, 0]))},
        "ratios of 0 wanted",
    ),
    "norm": ("llama", {"dflash.expert_weights_norm": (U32, 1)}, "true wanted"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_unusable_value_is_refused(
    pairs: dict[str, PairPaths], case: str, tmp_path: Path
) -> None:
    spelling, put, words = BAD[case]
    support = changed(pairs[spelling].support, tmp_path / "s.gguf", put)
    assert words in refusal(support, pairs[spelling].base).message


def test_all_missing_keys_are_named(pairs: dict[str, PairPaths], tmp_path: Path) -> None:
    drop = ("dspark.block_size", "dspark.noise_token_id", "dspark.target_layer_ids")
    support = changed(pairs["ds4"].support, tmp_path / "s.gguf", {}, *drop)
    message = refusal(support, pairs["ds4"].base).message
    assert all(f"key {key} is missing" in message for key in drop)


def bare(path: Path, architecture: str, *tensors: str, keys: Keys | None = None) -> Path:
    sketch = Sketch(keys={"general.architecture": (STRING, architecture)} | (keys or {}))
    sketch.tensors = {name: Tensor((1,), 0, bytes(4)) for name in tensors}
    return sketch.write(path)


@pytest.mark.parametrize(
    ("architecture", "tensors", "words"),
    [
        ("deepseek4", ["mtp.0.e_proj.weight", "mtp.0.h_proj.weight"], "one-token MTP"),
        ("deepseek4", ["blk.43.nextn.eh_proj.weight"], "one-token MTP"),
        ("deepseek4", ["token_embd.weight"], "a model (deepseek4)"),
        ("dflash", ["fc.weight"], "a dense family"),
        ("deepseek41-dspark", ["mtp.0.main_proj.weight"], "V4.1"),
        ("clip", ["v.weight"], "without DSpark tensors (clip)"),
    ],
)
def test_other_files_are_refused_by_name(
    architecture: str, tensors: list[str], words: str, tmp_path: Path
) -> None:
    with GgufFile.open(bare(tmp_path / "s.gguf", architecture, *tensors)) as gguf:
        with pytest.raises(ModelFileError) as caught:
            detect_spelling(gguf)
        assert words in caught.value.message


def test_the_selector_family_is_refused_by_name(tmp_path: Path) -> None:
    keys: Keys = {"dflash.selector_rank": (U32, 8)}
    path = bare(tmp_path / "s.gguf", "dflash", "fc.weight", keys=keys)
    with (
        GgufFile.open(path) as gguf,
        pytest.raises(ModelFileError, match="selector family"),
    ):
        detect_spelling(gguf)


VARIANT, REVISION = "deepseek4.checkpoint_variant", "general.source.revision"


@pytest.mark.parametrize(
    ("of_base", "of_support", "words"),
    [
        ({VARIANT: "Vision-Exp"}, {}, "is none, the model has 'Vision-Exp'"),
        ({}, {VARIANT: "Vision-Exp"}, "is 'Vision-Exp', the model has none"),
        ({VARIANT: "a"}, {VARIANT: "b"}, "is 'b', the model has 'a'"),
        ({VARIANT: "a", REVISION: "1"}, {VARIANT: "a"}, f"{REVISION} is none"),
        ({REVISION: "1"}, {REVISION: "2"}, f"{REVISION} is '2', the model has '1'"),
        ({VARIANT: "a", REVISION: "1"}, {VARIANT: "a", REVISION: "1"}, ""),
        ({REVISION: "1"}, {}, ""),
        ({}, {REVISION: "1"}, ""),
    ],
)
def test_both_files_must_be_of_one_checkpoint(
    pairs: dict[str, PairPaths],
    of_base: dict[str, str],
    of_support: dict[str, str],
    words: str,
    tmp_path: Path,
) -> None:
    def marked(path: Path, name: str, marks: dict[str, str]) -> Path:
        return changed(path, tmp_path / name, {key: (STRING, v) for key, v in marks.items()})

    base = marked(pairs["ds4"].base, "b.gguf", of_base)
    support = marked(pairs["ds4"].support, "s.gguf", of_support)
    if words:
        assert words in refusal(support, base).message
    else:
        assert read(support, base).warnings == ()


@pytest.mark.parametrize(
    ("base", "support", "which"),
    [("m-0731", "s", "model"), ("m", "s-0731", "support file"), ("m-0731", "s-0731", "")],
)
def test_a_release_mark_on_one_name_only_is_a_warning(
    pairs: dict[str, PairPaths], base: str, support: str, which: str, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.gguf" for name in (base, support)]
    for path, source in zip(paths, (pairs["ds4"].base, pairs["ds4"].support), strict=True):
        path.symlink_to(source)
    warnings = read(paths[1], paths[0]).warnings
    assert len(warnings) == bool(which)
    assert all(f"only the {which} is named 0731" in line for line in warnings)
