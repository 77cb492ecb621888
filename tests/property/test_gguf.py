"""Damaged files never do anything but raise ModelFileError, and never take much memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf import quants as reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ds4chat.draft.binding import bind_draft
from ds4chat.draft.metadata import read_draft_config
from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.quants import FORMATS, QuantFormat
from ds4chat.formats.quants.base import decode
from ds4chat.formats.values import ARRAY, STRING
from ds4chat.formats.vocab import read_tokenizer
from ds4chat.model.binding import bind_target
from ds4chat.model.config import TargetConfig
from ds4chat.model.metadata import read_target_config
from tests.gguf_sketch import BOOL, F64, I32, U8, U64, Array, Sketch, Tensor, small
from tests.make_pair import make_pair

FLOAT_FORMATS = [quant for quant in FORMATS.values() if not quant.is_integer]
SHARED = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="module")
def pair(folder: Path) -> dict[str, bytes]:
    """A small but complete pair: few layers, so that damage hits keys and table often."""
    paths = make_pair(folder / "pair", ratios=(4, 128), n_hash=1, vocab=300, n_stages=1)
    return {"base": paths.base.read_bytes(), "support": paths.support.read_bytes()}


@pytest.fixture(scope="module")
def target(folder: Path, pair: dict[str, bytes]) -> TargetConfig:
    path = folder / "whole.gguf"
    path.write_bytes(pair["base"])
    with GgufFile.open(path) as gguf:
        return read_target_config(gguf)


def use_everything(path: Path, target: TargetConfig) -> None:
    """All that loading does with a file: each step alone may refuse it."""
    with GgufFile.open(path) as gguf:
        for key in gguf.metadata:
            refusable(lambda key=key: gguf.metadata[key])
        refusable(lambda: bind_target(gguf, read_target_config(gguf)))
        refusable(lambda: read_tokenizer(gguf))
        refusable(lambda: bind_draft(gguf, read_draft_config(gguf, target).config, target))
        for entry in gguf.tensors.values():
            if entry.quant is not None and not entry.quant.is_integer:
                gguf.floats(entry)


def refusable(work: Any) -> None:
    try:
        work()
    except ModelFileError as error:
        check_words(error)


def check_words(error: ModelFileError) -> None:
    assert all(char.isprintable() for char in error.message.replace("\n  - ", ""))


def survives(blob: bytes, path: Path, target: TargetConfig) -> None:
    path.write_bytes(blob)
    tracemalloc.start()
    try:
        refusable(lambda: use_everything(path, target))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(blob) + (64 << 20)


@SHARED
@given(which=st.sampled_from(["base", "support"]), place=st.floats(0, 1), is_head=st.booleans())
def test_a_cut_file_is_refused(
    which: str, place: float, is_head: bool, pair: dict[str, bytes], folder: Path
) -> None:
    blob = pair[which]
    size = 12_000 if is_head else len(blob)
    path = folder / "cut.gguf"
    path.write_bytes(blob[: min(int(place * size), len(blob) - 1)])
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    check_words(caught.value)


@SHARED
@given(
    which=st.sampled_from(["base", "support"]),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_bytes_flipped_in_the_directory(
    which: str,
    flips: list[tuple[float, int]],
    pair: dict[str, bytes],
    folder: Path,
    target: TargetConfig,
) -> None:
    blob = bytearray(pair[which])
    with_directory = 12_000 if which == "base" else 4_000
    for place, value in flips:
        blob[int(place * with_directory)] = value
    survives(bytes(blob), folder / "flipped.gguf", target)


@SHARED
@given(data=st.binary(max_size=300), is_headed=st.booleans(), counts=st.binary(max_size=2))
def test_any_bytes(
    data: bytes, is_headed: bool, counts: bytes, folder: Path, target: TargetConfig
) -> None:
    head = b"GGUF\3\0\0\0" + counts[:1].ljust(8, b"\0") + counts[1:].ljust(8, b"\0")
    survives((head if is_headed else b"") + data, folder / "any.gguf", target)


@SHARED
@given(
    words=st.integers(0, 2**64 - 1),
    at=st.integers(0, 600),
)
def test_any_number_anywhere_in_a_small_file(
    words: int, at: int, folder: Path, target: TargetConfig
) -> None:
    blob = bytearray(small().build())
    blob[at : at + 8] = words.to_bytes(8, "little")
    survives(bytes(blob), folder / "number.gguf", target)


texts = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.one_of(
    st.tuples(st.just(STRING), texts),
    st.tuples(st.just(U8), st.integers(0, 255)),
    st.tuples(st.just(I32), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(U64), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(F64), st.floats(allow_nan=False)),
    st.tuples(st.just(BOOL), st.booleans()),
    st.tuples(
        st.just(ARRAY),
        st.one_of(
            st.builds(Array, st.just(STRING), st.lists(texts, max_size=4)),
            st.builds(Array, st.just(I32), st.lists(st.integers(-9, 9), max_size=4)),
        ),
    ),
)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@SHARED
@given(
    keys=st.dictionaries(texts.map("k.".__add__), values, max_size=5),
    tensors=st.dictionaries(texts, shapes, max_size=4),
    is_padded=st.booleans(),
)
def test_what_is_written_is_read(
    keys: dict[str, tuple[int, Any]],
    tensors: dict[str, tuple[int, ...]],
    is_padded: bool,
    folder: Path,
) -> None:
    sketch = Sketch(keys=keys, is_padded=is_padded)
    for number, (name, shape) in enumerate(tensors.items()):
        data = np.full(shape, number, dtype="<f4").tobytes()
        sketch.tensors[name] = Tensor(shape, 0, data)
    with GgufFile.open(sketch.write(folder / "made.gguf")) as gguf:
        assert list(gguf.metadata) == list(keys)
        for key, (kind, value) in keys.items():
            got: Any = gguf.metadata[key]
            assert (list(got) == value.values) if kind == ARRAY else (got == value)
        assert list(gguf.tensors) == list(tensors)
        for number, (name, shape) in enumerate(tensors.items()):
            values_read = gguf.floats(gguf.tensors[name])
            assert values_read.shape == shape
            assert np.all(values_read == number)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), quant=st.sampled_from(FLOAT_FORMATS))
def test_decoders_equal_the_reference_on_any_blocks(
    data: st.DataObject, quant: QuantFormat
) -> None:
    n = data.draw(st.integers(1, 4))
    raw = data.draw(arrays.arrays(np.uint8, (n, quant.block_bytes)))
    with np.errstate(all="ignore"):
        want = reference.dequantize(raw, GGMLQuantizationType(quant.ggml_type))
    got = decode(quant, raw, (n, quant.block_values))
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32).reshape(got.shape))


def test_float_formats_keep_every_bit() -> None:
    halves = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(-1, 2)
    for quant in FLOAT_FORMATS:
        if quant.block_bytes == 2:
            kind = GGMLQuantizationType(quant.ggml_type)
            want = reference.dequantize(halves, kind).view(np.uint32)
            got = decode(quant, halves, (1 << 16,)).view(np.uint32)
            assert np.array_equal(got, want.reshape(-1))
