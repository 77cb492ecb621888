"""GGUF files from plain values, sound or broken on purpose: an independent writer for tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.values import ARRAY, STRING

U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64 = 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?"} | {
    U64: "Q",
    I64: "q",
    F64: "d",
}


@dataclass(frozen=True, slots=True)
class Array:
    """An array value: element type and elements."""

    kind: int
    values: list[Any]


@dataclass(slots=True)
class Tensor:
    """A tensor: dimensions in NumPy order, type id, bytes; `offset` None: the next free one."""

    shape: tuple[int, ...]
    type_id: int
    data: bytes
    offset: int | None = None


def string(text: str | bytes) -> bytes:
    """A length and bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def payload(kind: int, value: Any) -> bytes:
    """The bytes of a value."""
    if kind == STRING:
        return string(value)
    if kind == ARRAY:
        head = struct.pack("<IQ", value.kind, len(value.values))
        return head + b"".join(payload(value.kind, item) for item in value.values)
    return struct.pack("<" + _CODES[kind], value)


@dataclass
class Sketch:
    """A file to be: change anything, then `build` or `write`."""

    keys: dict[str, tuple[int, Any]] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    is_padded: bool = True
    extra_keys: list[bytes] = field(default_factory=list)
    extra_tensors: list[bytes] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Sketch:
        """All of an existing file."""
        sketch = cls()
        with GgufFile.open(path) as gguf:
            for key, value in gguf.metadata.items():
                kind = gguf.metadata.kind(key)
                if kind != ARRAY:
                    sketch.keys[key] = (kind, value)
                    continue
                assert isinstance(value, list | np.ndarray), f"{key}: nested"
                sketch.keys[key] = (kind, Array(gguf.metadata.head(key).kind, list(value)))
            for name, entry in gguf.tensors.items():
                data = gguf.raw(entry).tobytes()
                sketch.tensors[name] = Tensor(entry.shape, entry.type_id, data)
        return sketch

    def build(self) -> bytes:
        """The file's bytes."""
        keys = [
            string(k) + struct.pack("<I", t) + payload(t, v) for k, (t, v) in self.keys.items()
        ]
        keys += self.extra_keys
        table, data = [], b""
        for name, tensor in self.tensors.items():
            offset = len(data) if tensor.offset is None else tensor.offset
            dims = b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
            tail = struct.pack("<IQ", tensor.type_id, offset)
            table.append(string(name) + struct.pack("<I", len(tensor.shape)) + dims + tail)
            data += tensor.data
            if self.is_padded or name != list(self.tensors)[-1]:
                data += bytes(-len(data) % self.alignment)
        table += self.extra_tensors
        head = struct.pack("<4sIQQ", self.magic, self.version, len(table), len(keys))
        directory = head + b"".join(keys) + b"".join(table)
        return directory + bytes(-len(directory) % self.alignment if data else 0) + data

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        path.write_bytes(self.build())
        return path


def small() -> Sketch:
    """A sound file with a key of each type and three tensors."""
    scalars = {U8: 200, I8: -5, U16: 60000, I16: -300, U32: 1 << 31, I32: -7, F32: 0.5}
    scalars |= {BOOL: True, U64: 1 << 40, I64: -(1 << 40), F64: 1e-3}
    keys: dict[str, tuple[int, Any]] = {f"k.{kind}": (kind, v) for kind, v in scalars.items()}
    keys["k.text"] = (STRING, "größe")
    keys["k.words"] = (ARRAY, Array(STRING, ["a", "", "｜x｜"]))
    keys["k.flags"] = (ARRAY, Array(BOOL, [True, False]))
    keys["k.nested"] = (ARRAY, Array(ARRAY, [Array(I32, [1, 2]), Array(STRING, ["z"])]))
    floats = np.arange(6, dtype="<f4")
    ids = np.arange(8, dtype="<i4")
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 128, (2, 3, 34), dtype=np.uint8)
    tensors = {
        "f": Tensor((2, 3), F32_TYPE, floats.tobytes()),
        "i": Tensor((8,), I32_TYPE, ids.tobytes()),
        "q": Tensor((2, 96), Q8_0_TYPE, blocks.tobytes()),
    }
    return Sketch(keys=keys, tensors=tensors)


F32_TYPE, I32_TYPE, Q8_0_TYPE = 0, 26, 8
