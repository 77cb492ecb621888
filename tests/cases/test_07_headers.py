"""Sizes that a header claims: refused from the header alone, at once and without memory."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.values import ARRAY, STRING
from ds4chat.model.metadata import read_target_config
from tests.cases.replies import VERY_SMALL
from tests.cases.work import Work
from tests.gguf_sketch import U8, U32, Sketch, string
from tests.make_pair import make_pair

HUGE = 1 << 48
LONG = 1 << 32
SPARSE_BYTES = 1 << 40  # a model of many parts has as much; here it is a hole in a file
FLAT_BYTES, FEW_CALLS = 1 << 20, 5_000


def head(n_tensors: int, n_keys: int, rest: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, n_tensors, n_keys) + rest


def a_key(name: str, kind: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", kind) + value


def refusal(opening: Callable[[Path], Any], path: Path) -> str:
    """The message; the refusal took neither memory nor much work."""
    with pytest.raises(ModelFileError) as caught:
        opening(path)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError), Work() as work:
            opening(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < FLAT_BYTES
    assert work.calls < FEW_CALLS
    assert caught.value.hint
    return caught.value.message


def open_model(path: Path) -> Engine:
    return Engine.open(path, backend="cpu")


@pytest.mark.parametrize("room", [0, 5, 4096])
def test_32_bytes_that_claim_a_key_of_2_48(room: int, tmp_path: Path) -> None:
    """And with some bytes behind them, which a key would need at the least."""
    path = tmp_path / "hostile.gguf"
    path.write_bytes(head(0, 1, struct.pack("<Q", HUGE)) + bytes(room))
    assert path.stat().st_size == 32 + room
    message = refusal(open_model, path)
    assert f"the file has {32 + room:,}" in message
    assert (f"{HUGE:,} bytes" in message) is (room > 0)
    assert "\n" not in message


ARCHITECTURE, TOKENS = "general.architecture", "tokenizer.ggml.tokens"
RATIOS = "deepseek4.attention.compress_ratios"
SPARSE: dict[str, bytes] = {
    "a key": head(0, 1, struct.pack("<Q", LONG)),
    "a text": head(0, 1, a_key(ARCHITECTURE, STRING, struct.pack("<Q", LONG))),
    "numbers": head(0, 1, a_key(RATIOS, ARRAY, struct.pack("<IQ", U8, LONG))),
    "a token": head(0, 1, a_key(TOKENS, ARRAY, struct.pack("<IQQ", STRING, 1, LONG))),
    "tokens": head(0, 1, a_key(TOKENS, ARRAY, struct.pack("<IQ", STRING, LONG))),
    "arrays": head(0, 1, a_key(TOKENS, ARRAY, struct.pack("<IQ", ARRAY, LONG))),
    "a tensor's name": head(1, 0, struct.pack("<Q", LONG)),
    "keys": head(0, LONG, b""),
    "tensors": head(LONG, 0, b""),
}


def read_everything(path: Path) -> None:
    with GgufFile.open(path) as gguf:
        for key in gguf.metadata:
            _ = gguf.metadata[key]
        read_target_config(gguf)


@pytest.mark.parametrize("what", SPARSE)
def test_a_length_that_the_file_does_hold(what: str, tmp_path: Path) -> None:
    """The file's size bounds nothing: a model is large, and a file may be a hole."""
    path = tmp_path / "sparse.gguf"
    path.write_bytes(SPARSE[what])
    os.truncate(path, SPARSE_BYTES)
    message = refusal(read_everything, path)
    assert "at most" in message
    assert "\n" not in message


SIZES = {
    "attention.sliding_window": 1 << 20,
    "hyper_connection.sinkhorn_iterations": 1 << 31,
    "attention.indexer.top_k": 1 << 31,
    "block_count": 1 << 31,
    "expert_count": 1 << 31,
    "vocab_size": 1 << 31,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sketch:
    return Sketch.read(make_pair(tmp_path_factory.mktemp("pair"), seed=51, **VERY_SMALL).base)


@pytest.mark.parametrize("key", SIZES)
def test_a_size_that_memory_or_time_would_follow(
    sound: Sketch, key: str, tmp_path: Path
) -> None:
    """A window of a million rows once took minutes to try out and gigabytes."""
    keys = sound.keys | {f"deepseek4.{key}": (U32, SIZES[key])}
    path = replace(sound, keys=keys).write(tmp_path / "sizes.gguf")
    with pytest.raises(ModelFileError, match=key) as caught:
        open_model(path)
    assert f"{SIZES[key]}" in caught.value.message
