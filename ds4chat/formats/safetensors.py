"""Safetensors files, read and written with NumPy alone.

Layout: length of the header as 8 bytes little-endian, the header as JSON (padded with spaces),
then the data. A tensor is `{"dtype", "shape", "data_offsets": [begin, end]}` with offsets into
the data; `__metadata__` maps text to text. Types that NumPy lacks come as their bits: BF16 as
uint16, the eight-bit floats as uint8. Everything is checked before a single view is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import SnapshotError
from ds4chat.formats.show import printable

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "F64": "<f8",
        "I64": "<i8",
        "U64": "<u8",
        "F32": "<f4",
        "I32": "<i4",
        "U32": "<u4",
        "F16": "<f2",
        "BF16": "<u2",
        "I16": "<i2",
        "U16": "<u2",
        "F8_E4M3": "u1",
        "F8_E5M2": "u1",
        "F8_E8M0": "u1",
        "I8": "i1",
        "U8": "u1",
        "BOOL": "u1",
    }.items()
}
"""What each type's bits are read as."""

MAX_HEADER = 2 << 20
"""Longest header in bytes that is looked at: JSON takes up to 25 times as much in memory, and a
snapshot's has a hundred kilobytes or two."""

_LENGTH_BYTES = 8
_MAX_DIMS = 16
_MAX_VALUES = 1 << 59
_METADATA = "__metadata__"
_HINT = "The file is damaged, or was not written as safetensors."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: `dtype` is a key of `DTYPES`, `data` holds its values or bits."""

    dtype: str
    data: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeFile:
    """What a file holds. The tensors are read-only views of its bytes."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def encode(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> list[bytes | memoryview]:
    """The chunks of a file, in order; wide types first, so that every tensor is aligned.

    Raises:
        ValueError: an array's type is not that of its `dtype`, or a name is reserved.
    """
    ordered = sorted(tensors.items(), key=lambda item: -DTYPES[item[1].dtype].itemsize)
    table: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    chunks: list[bytes | memoryview] = []
    offset = 0
    for name, tensor in ordered:
        data = np.ascontiguousarray(tensor.data)
        if data.dtype != DTYPES[tensor.dtype] or name == _METADATA:
            raise ValueError(f"tensor {name!r}: {data.dtype} cannot be {tensor.dtype}")
        table[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.data.shape),
            "data_offsets": [offset, offset + data.nbytes],
        }
        offset += data.nbytes
        if data.nbytes:
            chunks.append(data.reshape(-1).view(np.uint8).data)
    header = json.dumps(table, separators=(",", ":")).encode("ascii")
    header += b" " * (-len(header) % _LENGTH_BYTES)
    return [len(header).to_bytes(_LENGTH_BYTES, "little") + header, *chunks]


def decode(buffer: bytes | memoryview, where: str) -> SafeFile:
    """Check a whole file and give views of its tensors.

    Args:
        buffer: all bytes of the file.
        where: the file's name, for messages.

    Raises:
        SnapshotError: anything about the file is not as the format says.
    """
    reader = _Reader(memoryview(buffer), where)
    return reader.read()


class _Reader:
    def __init__(self, buffer: memoryview, where: str) -> None:
        self._buffer = buffer
        self._where = printable(where, 400)

    def read(self) -> SafeFile:
        size = len(self._buffer)
        if size < _LENGTH_BYTES:
            self._fail(f"{size} bytes; a safetensors file has at least {_LENGTH_BYTES}")
        length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "little")
        room = min(size - _LENGTH_BYTES, MAX_HEADER)
        if length > room:
            self._fail(f"a header of {length:,} bytes is promised; at most {room:,} fit")
        start = _LENGTH_BYTES + length
        table = self._table(bytes(self._buffer[_LENGTH_BYTES:start]))
        metadata = self._metadata(table.pop(_METADATA, {}))
        data = np.frombuffer(self._buffer[start:], dtype=np.uint8)
        data.flags.writeable = False
        spans = {name: self._span(name, entry, len(data)) for name, entry in table.items()}
        self._check_cover(spans, len(data))
        tensors = {
            name: Tensor(dtype=dtype, data=_view(data[begin:end], dtype, shape))
            for name, (dtype, shape, begin, end) in spans.items()
        }
        return SafeFile(tensors=tensors, metadata=metadata)

    def _table(self, header: bytes) -> dict[str, Any]:
        try:
            table = json.loads(header.decode("utf-8"), object_pairs_hook=_no_doubles)
        except (ValueError, RecursionError) as error:
            self._fail(f"the header cannot be read: {printable(str(error), 120)}")
        if not isinstance(table, dict):
            self._fail(f"the header is a JSON {type(table).__name__}; an object wanted")
        return table

    def _metadata(self, found: Any) -> dict[str, str]:
        if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
            self._fail(f"{_METADATA} must map text to text")
        return found

    def _span(
        self, name: str, entry: Any, n_data: int
    ) -> tuple[str, tuple[int, ...], int, int]:
        shown = printable(name)
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            self._fail(f"tensor '{shown}' must have dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            self._fail(f"tensor '{shown}' has the unknown type {printable(str(dtype))}")
        if not _are_sizes(shape) or len(shape) > _MAX_DIMS or _is_absurd(shape):
            self._fail(f"tensor '{shown}' has the impossible shape {printable(str(shape))}")
        if not _are_sizes(offsets) or len(offsets) != 2:
            self._fail(f"tensor '{shown}' has the offsets {printable(str(offsets))}")
        begin, end = offsets
        if not begin <= end <= n_data:
            self._fail(
                f"tensor '{shown}' lies at {begin}..{end}; the data has {n_data:,} bytes"
            )
        n_bytes = math.prod(shape) * DTYPES[dtype].itemsize
        if end - begin != n_bytes:
            self._fail(
                f"tensor '{shown}' has {end - begin:,} bytes; its shape wants {n_bytes:,}"
            )
        return dtype, tuple(shape), begin, end

    def _check_cover(
        self, spans: Mapping[str, tuple[str, tuple[int, ...], int, int]], n_data: int
    ) -> None:
        """Tensors follow each other without gap or overlap, to the end of the file."""
        at = 0
        for name, (_, _, begin, end) in sorted(spans.items(), key=lambda s: s[1][2:]):
            if begin != at:
                what = "overlaps another" if begin < at else "leaves a gap"
                self._fail(f"tensor '{printable(name)}' {what}: starts at {begin}, not {at}")
            at = end
        if at != n_data:
            self._fail(f"the tensors end at {at:,}; the data has {n_data:,} bytes")

    def _fail(self, what: str) -> NoReturn:
        raise SnapshotError(f"{self._where}: {what}", _HINT)


def _view(raw: NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    return raw.view(DTYPES[dtype]).reshape(shape)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 63 for v in values
    )


def _is_absurd(shape: list[int]) -> bool:
    """Whether it is of nothing and yet no array can have it: NumPy passes over the zeros."""
    return 0 in shape and math.prod(max(1, size) for size in shape) >= _MAX_VALUES


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"'{printable(name)}' is there twice")
        table[name] = value
    return table
