"""Missing, unknown and oddly typed contents: derived where exact, else they are all named."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ds4chat.cli import inspect
from ds4chat.engine.engine import Engine
from ds4chat.errors import ModelFileError
from ds4chat.formats.values import ARRAY, STRING
from tests.cases.replies import VERY_SMALL
from tests.engines import plain_tokens
from tests.gguf_sketch import BOOL, F64, I32, I64, Array, Sketch, Tensor
from tests.make_pair import PairPaths, make_pair

P, T = "deepseek4.", "tokenizer.ggml."
FREE = ("general.name", f"{T}token_type", f"{P}vocab_size", f"{P}context_length",
        f"{P}attention.value_length", f"{P}rope.scaling.original_context_length",
        f"{P}rope.scaling.yarn_beta_fast", f"{P}rope.scaling.yarn_beta_slow")  # fmt: skip
"""Keys whose value is elsewhere in the file, or the same in every file that was published."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    folder = tmp_path_factory.mktemp("pair")
    return make_pair(folder, seed=51, rope_original_ctx=65536, **VERY_SMALL)


@pytest.fixture
def base(pair: PairPaths) -> Sketch:
    return Sketch.read(pair.base)


@pytest.fixture
def support(pair: PairPaths) -> Sketch:
    return Sketch.read(pair.support)


def renamed(sketch: Sketch, old: str, new: str) -> Sketch:
    tensors = {new if name == old else name: t for name, t in sketch.tensors.items()}
    return replace(sketch, tensors=tensors)


def without(sketch: Sketch, *names: str) -> Sketch:
    assert set(names) <= {*sketch.keys, *sketch.tensors}
    return replace(
        sketch,
        keys={name: v for name, v in sketch.keys.items() if name not in names},
        tensors={name: t for name, t in sketch.tensors.items() if name not in names},
    )


def with_key(sketch: Sketch, name: str, kind: int, value: Any) -> Sketch:
    return replace(sketch, keys=sketch.keys | {name: (kind, value)})


def refused(path: Path, support: Path | None = None) -> list[str]:
    """The lines of the refusal, the file's name taken off."""
    with pytest.raises(ModelFileError) as caught:
        Engine.open(path, support, backend="cpu", policy="fixed")
    assert caught.value.hint
    head, *lines = caught.value.message.split("\n  - ")
    assert ".gguf: " in head
    if not lines:
        return [head.split(".gguf: ", 1)[1]]
    assert head.endswith(f"{len(lines)} problems")
    return lines


def text_of(path: Path) -> list[int]:
    with Engine.open(path, backend="cpu", policy="fixed", end_ids=[]) as engine:
        session = engine.session()
        session.sync(engine.tokenize("What stands in a file?"))
        return plain_tokens(session, 6)


def names_in(lines: Iterable[str], names: Iterable[str]) -> None:
    """Every name has its line, and there is no other line."""
    lines, names = list(lines), list(names)
    assert len(lines) == len(names), lines
    for name in names:
        assert [line for line in lines if f" {name} " in f" {line} "], (name, lines)


LOST = (f"{P}block_count", f"{P}hyper_connection.epsilon", f"{P}attention.compress_ratios")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_keys_that_are_removed_are_all_named(base: Sketch, n: int, tmp_path: Path) -> None:
    path = without(base, *LOST[:n]).write(tmp_path / "a.gguf")
    names_in(refused(path), LOST[:n])


def test_a_renamed_tensor_is_named_with_the_name_it_has(base: Sketch, tmp_path: Path) -> None:
    path = renamed(base, "blk.1.attn_norm.weight", "blk.1.attn_nrm.weight")
    (line,) = refused(path.write(tmp_path / "a.gguf"))
    assert (
        line == "tensor blk.1.attn_norm.weight is missing (the file has blk.1.attn_nrm.weight)"
    )


@pytest.mark.parametrize("is_told", [True, False])
def test_keys_tensors_and_vocabulary_are_one_list(
    base: Sketch, tmp_path: Path, is_told: bool
) -> None:
    """Not the keys first, the tensors when those are there, and then the vocabulary."""
    keys = (f"{P}block_count", f"{P}expert_count") if is_told else (f"{P}expert_count",)
    lost = (*keys, "output.weight", "blk.1.attn_norm.weight", f"{T}merges", f"{T}pre")
    path = without(base, *lost).write(tmp_path / "a.gguf")
    names_in(refused(path), lost)


def test_with_sizes_but_not_all_tensors_the_vocabulary_is_in_the_list_too(
    base: Sketch, tmp_path: Path
) -> None:
    lost = ("output.weight", f"{T}merges", f"{T}model")
    names_in(refused(without(base, *lost).write(tmp_path / "a.gguf")), lost)


def test_the_support_file_has_one_list_too(
    pair: PairPaths, support: Sketch, tmp_path: Path
) -> None:
    lost = ("dspark.block_size", "dspark.noise_token_id", "mtp.0.attn_norm.weight")
    path = without(support, *lost).write(tmp_path / "s.gguf")
    names_in(refused(pair.base, path), lost)


def test_inspect_has_the_same_list(
    base: Sketch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = (f"{P}expert_count", "output.weight", f"{T}merges")
    path = without(base, *lost).write(tmp_path / "a.gguf")
    assert inspect.run(["--json", str(path)]) == 1
    names_in(json.loads(capsys.readouterr().out)["problems"], lost)


def test_what_can_be_derived_gives_the_same_text(
    pair: PairPaths, base: Sketch, tmp_path: Path
) -> None:
    late = without(base, *(name for name in FREE if name in base.keys))
    late.tensors["blk.7.from_another_converter"] = Tensor((4,), 0, bytes(16))
    late.tensors["blk.8.of_a_type_to_come"] = Tensor((4,), 77, b"")
    late.keys["general.file_type_of_tomorrow"] = (STRING, "unknown")
    assert text_of(late.write(tmp_path / "a.gguf")) == text_of(pair.base)


ODD: dict[str, tuple[int, Any]] = {
    "text": (STRING, "64"),
    "a flag": (BOOL, True),
    "a float": (F64, 0.5),
    "below zero": (I64, -3),
    "an array": (ARRAY, Array(I32, [7])),
    "texts": (ARRAY, Array(STRING, ["a"])),
}


@pytest.mark.parametrize(
    "odd", [n if n == "text" else pytest.param(n, marks=pytest.mark.slow) for n in ODD]
)
def test_an_odd_type_is_refused_by_the_keys_name_or_means_nothing(
    base: Sketch, tmp_path: Path, odd: str
) -> None:
    """Each key in turn. Nothing but words for a person may come of it."""
    path = tmp_path / "a.gguf"
    n_refused = 0
    for name, (kind, value) in base.keys.items():
        if name.startswith("general.") or (kind, value) == ODD[odd]:
            continue
        with_key(base, name, *ODD[odd]).write(path)
        try:
            Engine.open(path, backend="cpu", policy="fixed").close()
        except ModelFileError as error:
            assert name.split(".", 1)[1] in error.message
            n_refused += 1
    assert n_refused > len(base.keys) // 2
