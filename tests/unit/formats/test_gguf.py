from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf as reference
import numpy as np
import pytest

from ds4chat.errors import ModelFileError
from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.values import ARRAY, STRING
from tests.gguf_sketch import I32, U32, Array, Sketch, Tensor, payload, small, string


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message
    return caught.value.message


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    sketch = small()
    with GgufFile.open(sketch.write(tmp_path / "a.gguf")) as gguf:
        assert set(gguf.metadata) == set(sketch.keys)
        for key, (kind, value) in sketch.keys.items():
            if kind != ARRAY:
                assert gguf.metadata[key] == value, key
                assert type(gguf.metadata[key]) is type(value), key
        assert gguf.metadata["k.words"] == ["a", "", "｜x｜"]
        assert np.array_equal(np.asarray(gguf.metadata["k.flags"]), [True, False])
        nested = gguf.metadata["k.nested"]
        assert isinstance(nested, tuple)
        assert nested[0].tolist() == [1, 2]
        assert nested[1] == ["z"]


def test_arrays_are_counted_and_described_without_decoding(tmp_path: Path) -> None:
    with GgufFile.open(small().write(tmp_path / "a.gguf")) as gguf:
        assert gguf.metadata.count("k.words") == 3
        assert gguf.metadata.count("k.text") == 1
        assert gguf.metadata.count("absent") == 0
        assert gguf.metadata.describe("k.words") == "array of 3 STRING"
        assert gguf.metadata.describe("k.text") == "STRING"


def test_tensors_have_numpy_shapes_and_views(tmp_path: Path) -> None:
    sketch = small()
    with GgufFile.open(sketch.write(tmp_path / "a.gguf")) as gguf:
        assert gguf.tensors["f"].shape == (2, 3)
        assert np.array_equal(gguf.floats(gguf.tensors["f"]), np.arange(6.0).reshape(2, 3))
        assert gguf.integers(gguf.tensors["i"]).tolist() == list(range(8))
        raw = gguf.raw(gguf.tensors["q"])
        assert raw.shape == (2, 3 * 34)
        assert raw.tobytes() == sketch.tensors["q"].data
        assert not raw.flags.writeable
        assert not raw.flags.owndata
        assert gguf.floats(gguf.tensors["q"]).shape == (2, 96)


def test_views_outlive_the_file(tmp_path: Path) -> None:
    gguf = GgufFile.open(small().write(tmp_path / "a.gguf"))
    raw = gguf.raw(gguf.tensors["i"])
    gguf.close()
    assert raw.view("<i4").tolist() == list(range(8))
    with pytest.raises(ValueError, match="closed"):
        gguf.raw(gguf.tensors["i"])


def test_ids_and_floats_are_not_mixed_up(tmp_path: Path) -> None:
    with GgufFile.open(small().write(tmp_path / "a.gguf")) as gguf:
        with pytest.raises(TypeError, match="integers"):
            gguf.floats(gguf.tensors["i"])
        with pytest.raises(ModelFileError, match="I32 wanted"):
            gguf.integers(gguf.tensors["f"])


def test_what_the_gguf_package_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "b.gguf"
    writer = reference.GGUFWriter(path, "x")
    writer.add_custom_alignment(64)
    writer.add_array("list", [3, 4])
    data = np.random.default_rng(1).standard_normal((3, 5, 32)).astype(np.float32)
    for name, kind in (("a", 0), ("b", 1), ("c", 8), ("d", 30), ("e", 39)):
        quant = reference.GGMLQuantizationType(kind)
        packed = reference.quants.quantize(data, quant)
        writer.add_tensor(name, packed, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    theirs = {tensor.name: tensor for tensor in reference.GGUFReader(path).tensors}
    with GgufFile.open(path) as gguf:
        assert gguf.metadata["general.alignment"] == 64
        for name, entry in gguf.tensors.items():
            assert entry.shape == (3, 5, 32)
            assert entry.offset % 64 == 0
            want = reference.quants.dequantize(theirs[name].data, theirs[name].tensor_type)
            assert np.array_equal(gguf.floats(entry), want.reshape(entry.shape)), name


def test_header_bytes_end_where_the_data_begins(tmp_path: Path) -> None:
    sketch = small()
    blob = sketch.build()
    with GgufFile.open(sketch.write(tmp_path / "a.gguf")) as gguf:
        first = min(entry.offset for entry in gguf.tensors.values())
        assert gguf.header_bytes == blob[:first]
        assert gguf.file_bytes == len(blob)


def test_an_unknown_type_is_listed_and_not_read(tmp_path: Path) -> None:
    sketch = small()
    sketch.tensors["odd"] = Tensor((4,), 77, b"")
    with GgufFile.open(sketch.write(tmp_path / "a.gguf")) as gguf:
        entry = gguf.tensors["odd"]
        assert entry.quant is None
        assert entry.type_name == "type 77"
        for read in (gguf.raw, gguf.floats, gguf.integers):
            with pytest.raises(ModelFileError, match="type 77"):
                read(entry)


def broken(change: Callable[[Sketch], Any]) -> bytes:
    sketch = small()
    change(sketch)
    return sketch.build()


def header(n_tensors: int, n_keys: int, rest: bytes = b"") -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, n_tensors, n_keys) + rest


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", kind) + value


def deep(levels: int) -> bytes:
    return struct.pack("<IQ", ARRAY, 1) * levels + struct.pack("<IQ", I32, 0)


def odd_tensor(name: bytes = b"t", n_dims: int = 1, size: int = 4, offset: int = 0) -> bytes:
    dims = struct.pack("<Q", size) * n_dims
    return string(name) + struct.pack("<I", n_dims) + dims + struct.pack("<IQ", 0, offset)


ROOM = bytes(4096)
HUGE = 1 << 48
REFUSALS: dict[str, tuple[bytes, str]] = {
    "version 2": (broken(lambda s: setattr(s, "version", 2)), "version 2; version 3 wanted"),
    "big-endian": (header(0, 0)[:4] + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "key length 2^48": (header(0, 1, struct.pack("<Q", HUGE) + ROOM), f"needs {HUGE:,} bytes"),
    "32 bytes, key length 2^48": (header(0, 1, struct.pack("<Q", HUGE)), "32"),
    "absurd key count": (header(0, HUGE, ROOM), f"{HUGE:,} keys"),
    "absurd tensor count": (header(HUGE, 0, ROOM), f"{HUGE:,} tensors"),
    "long key": (header(0, 1, string(b"k" * 70_000) + ROOM), "70,000 bytes long"),
    "string length": (
        header(0, 1, key(b"k", STRING, struct.pack("<Q", HUGE)) + ROOM),
        f"needs {HUGE:,} bytes",
    ),
    "array length": (
        header(0, 1, key(b"k", ARRAY, struct.pack("<IQ", I32, HUGE)) + ROOM),
        f"{HUGE:,} INT32",
    ),
    "string array length": (
        header(0, 1, key(b"k", ARRAY, struct.pack("<IQ", STRING, HUGE)) + ROOM),
        f"{HUGE:,} STRING",
    ),
    "a string in an array": (
        header(0, 1, key(b"k", ARRAY, struct.pack("<IQQ", STRING, 2, HUGE)) + ROOM),
        "an array of 2 strings",
    ),
    "a longer string in an array": (
        header(0, 1, key(b"k", ARRAY, struct.pack("<IQQ", STRING, 2, (1 << 64) - 1)) + ROOM),
        "an array of 2 strings",
    ),
    "element type": (
        header(0, 1, key(b"k", ARRAY, struct.pack("<IQ", 99, 1)) + ROOM),
        "unknown type 99",
    ),
    "value type": (header(0, 1, key(b"k", 99, b"") + ROOM), "unknown type 99"),
    "nesting": (header(0, 1, key(b"k", ARRAY, deep(9)) + ROOM), "deeper than 8"),
    "key is not UTF-8": (header(0, 1, key(b"\xff\xfe", U32, ROOM)), "not UTF-8"),
    "tensor name is not UTF-8": (header(1, 0, odd_tensor(b"\xff") + ROOM), "not UTF-8"),
    "double key": (
        broken(lambda s: s.extra_keys.append(key(b"k.text", U32, payload(U32, 1)))),
        "key 'k.text' is there twice",
    ),
    "double tensor": (
        broken(lambda s: s.extra_tensors.append(odd_tensor(b"f"))),
        "tensor 'f' is there twice",
    ),
    "no dimensions": (header(1, 0, odd_tensor(n_dims=0) + ROOM), "0 dimensions"),
    "nine dimensions": (header(1, 0, odd_tensor(n_dims=9) + ROOM), "9 dimensions"),
    "empty dimension": (header(1, 0, odd_tensor(size=0) + ROOM), "impossible shape [0]"),
    "overflowing shape": (
        header(1, 0, odd_tensor(n_dims=4, size=1 << 32) + ROOM),
        "impossible shape",
    ),
    "huge tensor": (header(1, 0, odd_tensor(size=HUGE) + ROOM), "cut off"),
    "far offset": (header(1, 0, odd_tensor(offset=1 << 62) + ROOM), "cut off"),
    "odd offset": (header(1, 0, odd_tensor(offset=4) + ROOM), "a multiple of the alignment 32"),
    "partial block": (
        broken(lambda s: s.tensors.update(z=Tensor((33,), 8, bytes(64)))),
        "rows of 33 values; Q8_0 wants a multiple of 32",
    ),
    "overlap": (
        broken(lambda s: s.tensors.update(z=Tensor((8,), 0, bytes(32), offset=0))),
        "overlap",
    ),
    "alignment type": (
        broken(lambda s: s.keys.update({"general.alignment": (I32, 32)})),
        "INT32; UINT32 wanted",
    ),
    "alignment 0": (
        broken(lambda s: s.keys.update({"general.alignment": (U32, 0)})),
        "general.alignment is 0",
    ),
    "alignment 24": (
        broken(lambda s: s.keys.update({"general.alignment": (U32, 24)})),
        "a power of two wanted",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_broken_file_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    blob, words = REFUSALS[case]
    path = tmp_path / "broken.gguf"
    path.write_bytes(blob)
    assert words in refusal(path)


def test_a_hostile_header_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hostile.gguf"
    for case in ("key length 2^48", "array length", "string array length", "huge tensor"):
        path.write_bytes(REFUSALS[case][0])
        tracemalloc.start()
        refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20, case


def test_a_file_name_cannot_drive_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m.gguf"
    path.write_bytes(header(0, 1, key(b"a\x1b]0;x\x07", 99, b"") + ROOM))
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    assert "\x1b" not in caught.value.message
    assert "\\x1b[31m" in caught.value.message


@pytest.mark.parametrize("n", [3, 24, 60, 200, 420])
def test_a_cut_directory_says_what_was_expected(n: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(small().build()[:n])
    message = refusal(path)
    assert "cut off or damaged" in message
    assert f"the file has {n:,}" in message


@pytest.mark.parametrize("short", [1, 50])
def test_cut_data_says_both_sizes(short: int, tmp_path: Path) -> None:
    sketch = small()
    sketch.tensors["last"] = Tensor((32,), 0, bytes(128))
    blob = sketch.build()
    path = tmp_path / "cut.gguf"
    path.write_bytes(blob[:-short])
    message = refusal(path)
    assert f"expected {len(blob):,} bytes" in message
    assert f"has {len(blob) - short:,}" in message
    assert "'last'" in message


def test_missing_padding_is_fine_and_half_of_it_is_a_cut(tmp_path: Path) -> None:
    sketch = small()  # its last tensor ends 12 bytes into an alignment of 32
    padded = sketch.build()
    sketch.is_padded = False
    bare = sketch.build()
    assert len(padded) - len(bare) == 20
    path = tmp_path / "a.gguf"
    path.write_bytes(bare)
    GgufFile.open(path).close()
    path.write_bytes(padded[:-1])
    assert f"expected {len(padded):,} bytes" in refusal(path)
    path.write_bytes(bare[:-1])
    assert f"expected {len(bare):,} bytes" in refusal(path)


def test_an_array_of_broken_text_is_refused_when_it_is_read(tmp_path: Path) -> None:
    sketch = small()
    sketch.keys["k.bad"] = (ARRAY, Array(STRING, ["ok", b"\xff"]))
    sketch.keys["k.worse"] = (STRING, b"\xc3")
    with GgufFile.open(sketch.write(tmp_path / "a.gguf")) as gguf:
        with pytest.raises(ModelFileError, match="string 1 of an array is not UTF-8"):
            _ = gguf.metadata["k.bad"]
        with pytest.raises(ModelFileError, match=r"'k\.worse'"):
            _ = gguf.metadata["k.worse"]
