"""Which files are opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFWriter

from ds4chat import settings
from ds4chat.cli import models
from ds4chat.errors import SettingsError

BASE = "DeepSeek-V4-Flash-chat-0731.gguf"
SUPPORT = "DeepSeek-V4-Flash-DSpark-support-0731.gguf"


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(b"not looked at")
    return folder / names[0]


def gguf(path: Path, architecture: str) -> None:
    writer = GGUFWriter(path, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def values(**given: object) -> settings.Settings:
    return settings.load({name: str(value) for name, value in given.items()}, environ={})


def test_support_is_found_by_name_beside_the_model(tmp_path: Path) -> None:
    model = touch(tmp_path, BASE, SUPPORT, "other.gguf", "notes-dspark.txt")
    pair = models.choose(values(model=model), None)
    assert pair == models.Pair(model=model, support=tmp_path / SUPPORT, is_found=True)


@pytest.mark.parametrize(
    ("base", "support"),
    [
        (BASE, SUPPORT.replace("-0731", "")),
        (BASE.replace("-0731", ""), SUPPORT),
        (BASE, SUPPORT.replace("Flash-", "Flash-Vision-Exp-")),
    ],
)
def test_support_of_another_checkpoint_is_left_alone(
    base: str, support: str, tmp_path: Path
) -> None:
    assert models.find_support(touch(tmp_path, base, support)) is None


def test_of_two_that_fit_none_is_guessed(tmp_path: Path) -> None:
    model = touch(tmp_path, BASE, SUPPORT, "copy-of-" + SUPPORT)
    assert models.find_support(model) is None


def test_without_a_telling_name_the_file_says_what_it_is(tmp_path: Path) -> None:
    model = tmp_path / "base.gguf"
    gguf(model, "deepseek4")
    gguf(tmp_path / "extra.gguf", "deepseek4-dspark")
    gguf(tmp_path / "llama.gguf", "llama")
    touch(tmp_path, "broken.gguf")
    assert models.find_support(model) == tmp_path / "extra.gguf"


def test_a_link_to_the_model_is_not_its_support(tmp_path: Path) -> None:
    real = touch(tmp_path, BASE)
    link = tmp_path / "ds4flash-dspark-0731.gguf"
    link.symlink_to(real)
    assert models.find_support(link) is None


def test_a_linked_model_finds_the_support_beside_the_real_file(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    real = touch(tmp_path / "store", BASE, SUPPORT)
    link = tmp_path / "ds4flash.gguf"
    link.symlink_to(real)
    assert models.find_support(link) == tmp_path / "store" / SUPPORT


def test_a_named_support_file_wins_and_none_means_none(tmp_path: Path) -> None:
    model = touch(tmp_path, BASE, SUPPORT, "own.gguf")
    own = models.choose(values(model=model, support=tmp_path / "own.gguf"), None)
    assert own == models.Pair(model=model, support=tmp_path / "own.gguf")
    none = models.choose(values(model=model, support="none"), None)
    assert none == models.Pair(model=model, support=None)


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    model = touch(tmp_path, BASE)
    with pytest.raises(SettingsError, match="no such file"):
        models.choose(values(model=tmp_path / "nothing.gguf"), None)
    with pytest.raises(SettingsError, match="a folder"):
        models.choose(values(model=tmp_path), None)
    with pytest.raises(SettingsError, match=r"support file .* no such file"):
        models.choose(values(model=model, support=tmp_path / "nothing.gguf"), None)


def test_the_bundled_pair_is_the_default(tmp_path: Path) -> None:
    assert models.choose(values(), None) is None
    touch(tmp_path, "nano-dspark.gguf", "nano.gguf")
    pair = models.choose(values(), tmp_path)
    assert pair is not None
    assert pair.model == tmp_path / "nano.gguf"
    assert pair.support == tmp_path / "nano-dspark.gguf"


def test_several_support_files_are_named_and_the_way_out(tmp_path: Path) -> None:
    model = touch(tmp_path, "base.gguf")
    for name in ("good", "other"):
        gguf(tmp_path / f"{name}-dspark.gguf", "deepseek4-dspark")
    pair = models.choose(values(model=model), None)
    assert pair is not None
    assert pair.support is None
    assert pair.note == (
        "2 support files lie beside the model (good-dspark.gguf, other-dspark.gguf): none is "
        "used. Name one with --support FILE."
    )


def test_a_support_file_that_is_cut_off_does_not_count(tmp_path: Path) -> None:
    model = touch(tmp_path, "base.gguf")
    gguf(tmp_path / "good-dspark.gguf", "deepseek4-dspark")
    whole = (tmp_path / "good-dspark.gguf").read_bytes()
    (tmp_path / "partial-dspark.gguf").write_bytes(whole[:-9])
    beside = models.look_beside(model)
    assert beside.found == tmp_path / "good-dspark.gguf"
    assert beside.note == (
        "beside the model partial-dspark.gguf: cut off, damaged or not readable, passed over; "
        "good-dspark.gguf is used."
    )


def test_of_many_damaged_support_files_a_few_are_named(tmp_path: Path) -> None:
    names = [f"{place}-dspark.gguf" for place in range(5)]
    beside = models.look_beside(touch(tmp_path, "base.gguf", *names))
    assert beside.found is None
    assert "(0-dspark.gguf, 1-dspark.gguf, 2-dspark.gguf, 2 more), all of them cut" in (
        beside.note
    )


def test_one_support_file_alone_is_taken_and_left_to_the_engine_to_judge(
    tmp_path: Path,
) -> None:
    model = touch(tmp_path, "base.gguf", "x-dspark.gguf")
    assert models.look_beside(model) == models.Beside(found=tmp_path / "x-dspark.gguf")
