from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from tests.gguf_sketch import I32, U16, Sketch, Tensor, small


def refusal(path: Path | str) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    return caught.value


FOREIGN = {
    "safetensors": struct.pack("<Q", 60) + b'{"__metadata__":{}}' + bytes(60),
    "zip": b"PK\x03\x04" + bytes(40),
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:00",
    "web page": b"\n<!DOCTYPE html><html><head>",
    "gzip": b"\x1f\x8b\x08" + bytes(40),
    "big-endian": b"FUGG" + bytes(40),
    "before GGUF": b"tjgg" + bytes(40),
    "zeros": bytes(64),
    "begins with 68 65 6c 6c": b"hello, this is no model file",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_another_kind_of_file_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(FOREIGN[what])
    assert what in refusal(path).message


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.touch()
    assert "empty: 0 bytes" in refusal(path).message


def test_a_missing_path() -> None:
    error = refusal("/nowhere/at/all.gguf")
    assert "no such file" in error.message
    assert isinstance(error.__cause__, OSError)


def test_a_folder_names_the_files_in_it(tmp_path: Path) -> None:
    small().write(tmp_path / "in.gguf")
    error = refusal(tmp_path)
    assert "a folder" in error.message
    assert "in.gguf" in error.hint
    assert isinstance(error.__cause__, OSError)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    error = refusal(tmp_path / "pipe")
    assert "not a regular file" in error.message
    assert isinstance(error.__cause__, OSError)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = small().write(tmp_path / "x.gguf")
    path.chmod(0)
    assert "permission denied" in refusal(path).message


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_an_impossible_path(path: str) -> None:
    error = refusal(path)
    assert isinstance(error.__cause__, OSError)
    assert "\0" not in error.message


def write_split(folder: Path, stem: str = "m", count: int = 3) -> list[Path]:
    paths = []
    for number in range(count):
        sketch = small() if number == 0 else Sketch()
        sketch.keys |= {"split.no": (U16, number), "split.count": (U16, count)}
        sketch.keys["split.tensors.count"] = (I32, 3 + 2 * (count - 1))
        if number:
            sketch.tensors = {
                f"t{number}.{i}": Tensor((4,), 0, struct.pack("<4f", number, i, 0, 0))
                for i in range(2)
            }
        paths.append(sketch.write(folder / f"{stem}-{number + 1:05}-of-{count:05}.gguf"))
    return paths


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_part_opens_the_whole(named: int, tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    with GgufFile.open(paths[named]) as gguf:
        assert gguf.parts == tuple(paths)
        assert set(gguf.tensors) == {"f", "i", "q", "t1.0", "t1.1", "t2.0", "t2.1"}
        assert gguf.floats(gguf.tensors["t2.1"]).tolist() == [2, 1, 0, 0]
        assert gguf.metadata["k.text"] == "größe"
        assert gguf.file_bytes == sum(path.stat().st_size for path in paths)
        heads = [path.read_bytes()[:64] for path in paths]
        assert all(head in gguf.header_bytes for head in heads)


def test_missing_parts_are_all_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, count=4)
    paths[1].unlink()
    paths[3].unlink()
    message = refusal(paths[0]).message
    assert "2 of 4 parts are missing" in message
    assert paths[1].name in message
    assert paths[3].name in message


def test_a_copied_part_is_noticed(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[2].write_bytes(paths[1].read_bytes())
    message = refusal(paths[0]).message
    assert "holds part 2, its name says part 3" in message


def test_a_copied_part_without_a_number_is_noticed(tmp_path: Path) -> None:
    for number in (1, 2):
        small().write(tmp_path / f"m-{number:05}-of-00002.gguf")
    assert "tensor 'f' is also in" in refusal(tmp_path / "m-00001-of-00002.gguf").message


def test_a_part_of_another_model_is_noticed(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    sketch = Sketch(keys={"split.no": (U16, 2), "split.count": (U16, 3)})
    sketch.tensors = {"t2.0": Tensor((4,), 0, bytes(16))}
    sketch.write(paths[2])
    assert "hold 6 tensors, split.tensors.count says 7" in refusal(paths[0]).message


def test_a_renamed_part_is_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[1].rename(tmp_path / "model.gguf")
    assert "one of 3 parts" in refusal(tmp_path / "model.gguf").message


def test_name_and_key_must_agree_on_the_count(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    other = paths[0].rename(tmp_path / "m-00001-of-00002.gguf")
    assert "name says 2 parts, the key split.count says 3" in refusal(other).message


@pytest.mark.parametrize("name", ["m-00004-of-00003.gguf", "m-00000-of-00003.gguf"])
def test_impossible_numbers_are_refused(name: str, tmp_path: Path) -> None:
    path = small().write(tmp_path / name)
    assert "cannot be" in refusal(path).message


def test_an_absurd_count_is_refused_without_looking(tmp_path: Path) -> None:
    path = small().write(tmp_path / "m-00001-of-99999.gguf")
    assert "cannot be" in refusal(path).message


def test_one_of_one_is_a_plain_file(tmp_path: Path) -> None:
    path = small().write(tmp_path / "m-00001-of-00001.gguf")
    with GgufFile.open(path) as gguf:
        assert gguf.parts == (path,)
