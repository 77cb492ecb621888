"""Safetensors: our files are standard, others' files are read, broken ones are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.errors import SnapshotError
from ds4chat.formats.safetensors import DTYPES, SafeFile, Tensor, decode, encode


def sample(dtype: str, shape: tuple[int, ...]) -> Tensor:
    kind = DTYPES[dtype]
    raw = np.random.default_rng(len(shape)).integers(0, 256, (*shape, kind.itemsize), np.uint8)
    return Tensor(dtype=dtype, data=raw.view(kind).reshape(shape))


SAMPLES = {f"{name}.{i}": sample(name, shape) for name in DTYPES for i, shape in enumerate(
    [(3,), (2, 5), (0, 4), (), (1, 1, 7)])}  # fmt: skip


def joined(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return b"".join(encode(tensors, metadata))


def with_header(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    return size.to_bytes(8, "little") + text + data


def entry(dtype: Any = "U8", shape: Any = (2,), offsets: Any = (0, 2)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def assert_equal(found: SafeFile, wanted: dict[str, Tensor]) -> None:
    assert found.tensors.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert found.tensors[name].data.shape == tensor.data.shape
        assert found.tensors[name].data.tobytes() == tensor.data.tobytes()


def test_round_trip_of_every_type() -> None:
    found = decode(joined(SAMPLES, {"a": "ü"}), "x")
    assert_equal(found, SAMPLES)
    assert found.metadata == {"a": "ü"}
    assert not any(t.data.flags.writeable for t in found.tensors.values())


def test_data_is_aligned() -> None:
    raw = joined(SAMPLES)
    start = 8 + int.from_bytes(raw[:8], "little")
    assert start % 8 == 0
    for name, place in json.loads(raw[8:start]).items():
        assert place["data_offsets"][0] % DTYPES[SAMPLES[name].dtype].itemsize == 0


def test_array_of_another_type_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="cannot be F32"):
        encode({"a": Tensor(dtype="F32", data=np.zeros(3, np.float64))})


def test_the_package_reads_ours_and_we_read_its() -> None:
    package = pytest.importorskip("safetensors")
    ours = {name: t for name, t in SAMPLES.items() if "BOOL" not in name}
    theirs = dict(package.deserialize(joined(ours)))
    assert theirs.keys() == ours.keys()
    for name, place in theirs.items():
        assert place["dtype"] == ours[name].dtype
        assert tuple(place["shape"]) == ours[name].data.shape
        assert bytes(place["data"]) == ours[name].data.tobytes()
    numbers = pytest.importorskip("safetensors.numpy")
    wide, ids = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3)
    found = decode(numbers.save({"w": wide, "i": ids}, {"k": "v"}), "theirs")
    wanted = {"w": Tensor(dtype="F32", data=wide), "i": Tensor(dtype="I64", data=ids)}
    assert_equal(found, wanted)
    assert found.metadata == {"k": "v"}


DEEP = b"[" * 200_000

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes"),
    "seven bytes": (bytes(7), "7 bytes"),
    "no header": (bytes(8), "cannot be read"),
    "header longer than the file": (with_header({}, length=3), "at most 2 fit"),
    "header of 2^63": (with_header({}, length=1 << 63), "promised"),
    "not JSON": (with_header(b"hello"), "cannot be read"),
    "not UTF-8": (with_header(b'{"\xff":1}'), "cannot be read"),
    "too deep": (with_header(DEEP), "cannot be read"),
    "a list": (with_header([1]), "an object wanted"),
    "double name": (with_header(b'{"a":{},"a":{}}'), "twice"),
    "metadata not text": (with_header({"__metadata__": {"a": 1}}), "map text to text"),
    "metadata a list": (with_header({"__metadata__": []}), "map text to text"),
    "entry a number": (with_header({"a": 1}), "must have dtype"),
    "entry incomplete": (with_header({"a": {"dtype": "U8"}}), "must have dtype"),
    "entry with more": (with_header({"a": {**entry(), "b": 1}}, b"ab"), "must have dtype"),
    "unknown type": (with_header({"a": entry("F3")}, b"ab"), "unknown type F3"),
    "type a list": (with_header({"a": entry(["U8"])}, b"ab"), "unknown type"),
    "negative size": (with_header({"a": entry("U8", [-2])}, b"ab"), "impossible shape"),
    "size a flag": (with_header({"a": entry("U8", [True])}, b"ab"), "impossible shape"),
    "size a float": (with_header({"a": entry("U8", [2.0])}, b"ab"), "impossible shape"),
    "size 2^64": (with_header({"a": entry("U8", [1 << 64])}, b"ab"), "impossible shape"),
    "product overflows": (with_header({"a": entry("U8", [1 << 62] * 4)}, b"ab"), "wants"),
    "many dimensions": (with_header({"a": entry("U8", [1] * 17)}, b"ab"), "impossible shape"),
    "three offsets": (with_header({"a": entry("U8", [2], [0, 1, 2])}, b"ab"), "offsets"),
    "offsets reversed": (with_header({"a": entry("U8", [2], [2, 0])}, b"ab"), "lies at"),
    "past the end": (with_header({"a": entry("U8", [3], [0, 3])}, b"ab"), "lies at"),
    "wrong size": (with_header({"a": entry("U16", [2], [0, 2])}, b"ab"), "wants 4"),
    "overlap": (with_header({"a": entry(), "b": entry("U8", [2], [1, 3])}, b"abc"), "overlaps"),
    "gap": (with_header({"a": entry("U8", [1], [1, 2])}, b"ab"), "gap"),
    "bytes left over": (with_header({"a": entry("U8", [1], [0, 1])}, b"ab"), "end at 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused(case: str) -> None:
    raw, words = BROKEN[case]
    with pytest.raises(SnapshotError, match=words) as caught:
        decode(raw, "folder/x\x1b.safetensors")
    assert "x\\x1b.safetensors" in caught.value.message
    assert caught.value.hint


@given(cut=st.integers(0, 400), at=st.integers(0, 400), bit=st.integers(0, 7))
def test_cut_or_flipped_files_never_escape_the_checks(cut: int, at: int, bit: int) -> None:
    raw = joined({"a": sample("F32", (4, 5)), "b": sample("U8", (6,))})
    with pytest.raises(SnapshotError):
        decode(raw[: min(cut, len(raw) - 1)], "x")
    flipped = bytearray(raw)
    flipped[at % len(raw)] ^= 1 << bit
    try:
        found = decode(bytes(flipped), "x")
    except SnapshotError:
        return
    assert sum(t.data.nbytes for t in found.tensors.values()) == 86
