"""A file that is cut anywhere is refused, with the size it should have and the size it has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from tests.cases.replies import VERY_SMALL
from tests.make_pair import PairPaths, make_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=51, **VERY_SMALL)


def copied(path: Path, folder: Path, n_bytes: int) -> Path:
    found = folder / path.name
    found.write_bytes(path.read_bytes()[:n_bytes])
    return found


def refusal(path: Path, support: Path | None = None) -> str:
    with pytest.raises(ModelFileError) as caught:
        Engine.open(path, support, backend="cpu", policy="fixed")
    return caught.value.message


def starts(path: Path) -> tuple[int, int, int]:
    """Size, where the data begin, and where the last tensor begins."""
    with GgufFile.open(path) as gguf:
        last = max(entry.offset for entry in gguf.tensors.values())
        return path.stat().st_size, len(gguf.header_bytes), last


Place = Callable[[int, int, int], int]
PLACES: dict[str, Place] = {
    "nothing": lambda size, data, last: 0,
    "in the magic": lambda size, data, last: 3,
    "after the header": lambda size, data, last: 24,
    "in the keys": lambda size, data, last: 400,
    "in the vocabulary": lambda size, data, last: data // 3,
    "in the tensor table": lambda size, data, last: data - 300,
    "before the data": lambda size, data, last: data,
    "in the data": lambda size, data, last: (data + size) // 2,
    "before the last tensor": lambda size, data, last: last,
    "one byte short": lambda size, data, last: last + 1,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_model_cut_at_any_place(pair: PairPaths, tmp_path: Path, place: str) -> None:
    size, data, last = starts(pair.base)
    n = size - 1 if place == "one byte short" else PLACES[place](size, data, last)
    with GgufFile.open(pair.base) as gguf:
        end = max(entry.offset + entry.n_bytes for entry in gguf.tensors.values())
    n = min(n, end - 1)
    message = refusal(copied(pair.base, tmp_path, n))
    assert pair.base.name in message
    assert f"{n:,}" in message or n == 0, "the size that it has"
    if n > 24:
        assert any(f"{wanted:,}" in message for wanted in range(n + 1, size + 1))


@pytest.mark.parametrize("place", ["in the magic", "in the tensor table", "one byte short"])
def test_a_support_file_cut_at_any_place(pair: PairPaths, tmp_path: Path, place: str) -> None:
    size, data, last = starts(pair.support)
    cut = copied(pair.support, tmp_path, min(PLACES[place](size, data, last), size - 40))
    message = refusal(pair.base, cut)
    assert pair.support.name in message


def test_a_file_that_grows_at_its_end_is_read_as_it_was(
    pair: PairPaths, tmp_path: Path
) -> None:
    grown = copied(pair.base, tmp_path, pair.base.stat().st_size)
    with grown.open("ab") as file:
        file.write(os.urandom(4096))
    with Engine.open(grown, backend="cpu") as engine:
        assert engine.info.n_layers == 2


def test_zeros_where_the_download_stopped(pair: PairPaths, tmp_path: Path) -> None:
    """A file of the full size that was reserved and not filled: nothing crashes on it."""
    data, (_, start, _) = pair.base.read_bytes(), starts(pair.base)
    for keep in (0, 24, 400, start // 2, start - 300):
        path = tmp_path / "zeros.gguf"
        path.write_bytes(data[:keep] + bytes(len(data) - keep))
        assert "zeros.gguf" in refusal(path)
