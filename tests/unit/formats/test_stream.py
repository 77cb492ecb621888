from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.stream import TensorStream

SIZES = {"first": 1, "middle": 1000, "last": 7 * 256}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "f.gguf"
    writer = GGUFWriter(path, "test")
    rng = np.random.default_rng(2)
    for name, size in SIZES.items():
        writer.add_tensor(name, rng.standard_normal(size).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("chunk_bytes", [16, 256, 4000, 1 << 20])
def test_chunks_are_the_bytes_in_order(path: Path, chunk_bytes: int) -> None:
    with GgufFile.open(path) as gguf, TensorStream(gguf, chunk_bytes) as stream:
        for name in (*SIZES, *reversed(SIZES)):
            entry = gguf.tensors[name]
            chunks = [chunk.copy() for chunk in stream.chunks(entry)]
            assert max(map(len, chunks)) <= chunk_bytes
            assert np.concatenate(chunks).tobytes() == gguf.raw(entry).tobytes()


def test_few_buffers_serve_many_chunks(path: Path) -> None:
    with GgufFile.open(path) as gguf, TensorStream(gguf, 16) as stream:
        places = {chunk.ctypes.data for chunk in stream.chunks(gguf.tensors["last"])}
    assert 1 <= len(places) <= 7  # of 448 chunks


def test_a_file_that_was_cut_is_refused(path: Path) -> None:
    with GgufFile.open(path) as gguf, TensorStream(gguf, 256) as stream:
        os.truncate(path, gguf.tensors["last"].offset + 300)
        with pytest.raises(ModelFileError, match="ends inside last") as caught:
            list(stream.chunks(gguf.tensors["last"]))
    assert "replaced or cut" in caught.value.hint


def test_a_file_that_is_gone_is_refused(path: Path) -> None:
    with GgufFile.open(path) as gguf, TensorStream(gguf) as stream:
        path.unlink()
        with pytest.raises(ModelFileError, match="No such file"):
            list(stream.chunks(gguf.tensors["last"]))
