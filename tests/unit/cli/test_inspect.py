from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ds4chat.cli.inspect import run
from ds4chat.formats.values import STRING
from tests.gguf_sketch import U32, Sketch
from tests.make_pair import PairPaths, make_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), quant="q2", ratios=(0, 4, 128))


def report(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> dict[str, object]:
    run([*map(str, argv), "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_model(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(pair.base)]) == 0
    text = capsys.readouterr().out
    for line in ("n_layers            3", "pre          joyai-llm", "IQ2_XXS", "ok: usable"):
        assert line in text


def test_a_model_as_json(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, pair.base)
    assert found["kind"] == "model"
    assert found["geometry"]["layers_by_ratio"] == {"0": 1, "4": 1, "128": 1}  # type: ignore[index]
    assert found["tokenizer"]["specials"]["user"] == 506  # type: ignore[index]
    assert found["n_bound"] == found["n_tensors"]
    assert found["problems"] == []
    sizes = {row["type"]: row["bytes"] for row in found["quant"]}  # type: ignore[attr-defined]
    assert sizes["IQ2_XXS"] == 3 * 2 * 8 * 256 * 66


def test_a_support_file(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, pair.support)
    support = found["support"]
    assert found["kind"] == "support"
    assert (support["n_stages"], support["block_size"]) == (3, 5)  # type: ignore[index]
    assert support["target_layers"] == [0, 1, 2]  # type: ignore[index]


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_pair(pair: PairPaths, is_swapped: bool, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (pair.support, pair.base) if is_swapped else (pair.base, pair.support)
    assert run([str(first), "--pair", str(second)]) == 0
    assert "the pair fits together" in capsys.readouterr().out


def test_a_pair_that_does_not_fit(
    pair: PairPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_pair(tmp_path, ratios=(0, 4, 128), vocab=400)
    assert run([str(pair.base), "--pair", str(other.support)]) == 1
    assert "main_proj.weight: shape" in capsys.readouterr().out


def test_all_problems_are_listed(
    pair: PairPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sketch = Sketch.read(pair.base)
    del sketch.keys["tokenizer.ggml.pre"]
    del sketch.tensors["output.weight"]
    sketch.tensors.pop("blk.1.attn_kv.weight")
    path = sketch.write(tmp_path / "a.gguf")
    assert run([str(path)]) == 1
    text = capsys.readouterr().out
    assert "refused: 3 problem(s)" in text
    assert "output.weight is missing" in text
    assert "blk.1.attn_kv.weight is missing" in text
    assert "tokenizer.ggml.pre is missing" in text


def test_file_text_never_reaches_the_terminal_raw(
    pair: PairPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sketch = Sketch.read(pair.base)
    sketch.keys["general.name"] = (STRING, "evil\x1b]0;owned\x07\nok: usable")
    sketch.keys["general.architecture"] = (STRING, "deep\x1b[2J")
    sketch.tensors["x\x1b[31m"] = sketch.tensors.pop("output.weight")
    path = sketch.write(tmp_path / "a.gguf")
    run([str(path), "--tensors"])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "x\\x1b[31m" in text
    assert "\nok: usable" not in text


def test_tensors_and_hash(pair: PairPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(pair.support), "--tensors", "--sha256"]) == 0
    shown = capsys.readouterr()
    digest = hashlib.sha256(pair.support.read_bytes()).hexdigest()
    assert digest in shown.out
    assert "sha256:" in shown.err
    assert shown.out.count("mtp.") >= 81


def test_unreadable_paths_end_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(tmp_path / "none.gguf")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert run([str(tmp_path)]) == 2


def test_a_mistyped_file_names_the_nearest(
    pair: PairPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(pair.base)[:-6] + ".gguf"]) == 2
    assert f"Did you mean {pair.base}?" in capsys.readouterr().err
    assert run([str(pair.base), "--pair", f"{pair.support}f"]) == 2
    assert f"Did you mean {pair.support}?" in capsys.readouterr().err


def test_a_broken_file_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert run([str(path)]) == 1
    shown = capsys.readouterr()
    assert "zip" in shown.err
    assert shown.out == ""
    found = report(capsys, path)
    assert "zip" in found["problems"][0]  # type: ignore[index]


def test_a_support_file_under_the_models_architecture(
    pair: PairPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sketch = Sketch.read(pair.support)
    sketch.keys["general.architecture"] = (STRING, "deepseek4")
    sketch.keys["dspark.block_size"] = (U32, 99)
    found = report(capsys, sketch.write(tmp_path / "s.gguf"))
    assert found["kind"] == "support"
    assert "is 99; 1 to 16 wanted" in found["problems"][0]  # type: ignore[index]
