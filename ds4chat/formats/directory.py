"""The directory of one GGUF file: header, keys, tensor table. Version 3, little-endian.

Every count, length, shape and offset is checked against the file before it is used.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ds4chat.errors import ModelFileError
from ds4chat.formats import sniff
from ds4chat.formats.ggml_types import block_size, type_name
from ds4chat.formats.quants import FORMATS, QuantFormat
from ds4chat.formats.show import printable, shown_path
from ds4chat.formats.values import CUT_HINT, Cursor, Metadata, Slot, kind_name, skip_value
from ds4chat.sizes import fine_size

VERSION = 3
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 8
MAX_ENTRIES = 1 << 16  # keys, and tensors, of one file; each takes many times its bytes
MAX_DIRECTORY_BYTES = 1 << 27  # keys and tensor table: what may be copied out of a file at once
_HEADER_BYTES = 24
_MIN_KEY_BYTES = 13  # empty key, type, one byte
_MIN_TENSOR_BYTES = 32  # empty name, one dimension, type, offset
_MAX_ELEMENTS = 1 << 63
_UINT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of the directory.

    `shape` is in NumPy order ([out, in], [expert, out, in]); `quant` is None if we cannot
    decode the type; `offset` counts from the start of the file `part`; `n_bytes` is 0 for a
    type whose size we do not know.
    """

    name: str
    shape: tuple[int, ...]
    quant: QuantFormat | None
    type_id: int
    offset: int
    n_bytes: int
    part: int = 0

    @property
    def type_name(self) -> str:
        """Ggml's name of the type."""
        return type_name(self.type_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What one file says about itself. `data_start` is the first byte of the data section."""

    metadata: Metadata
    tensors: dict[str, TensorEntry]
    alignment: int
    data_start: int
    file_bytes: int


def read_directory(buffer: mmap.mmap, path: str) -> Directory:
    """Read and check the directory of a mapped file.

    Raises:
        ModelFileError: not GGUF v3, cut off, or anything in it is inconsistent.
    """
    cursor = Cursor(buffer, path)
    n_tensors, n_keys = _read_header(cursor)
    cursor.where = "the keys"
    slots = _read_keys(cursor, n_keys)
    metadata = Metadata(cursor, slots)
    alignment = _alignment(cursor, metadata)
    cursor.where = "the tensor table"
    table = _read_tensors(cursor, n_tensors)
    data_start = -(-cursor.pos // alignment) * alignment
    tensors = {
        entry.name: replace(entry, offset=data_start + _aligned(cursor, entry, alignment))
        for entry in table
    }
    _check_extent(cursor, tensors.values(), alignment)
    _check_overlap(cursor, tensors.values())
    return Directory(
        metadata=metadata,
        tensors=tensors,
        alignment=alignment,
        data_start=data_start,
        file_bytes=cursor.end,
    )


def _read_header(cursor: Cursor) -> tuple[int, int]:
    head = cursor.buffer[:64]
    if not sniff.MAGIC.startswith(head[:4]):
        raise ModelFileError(
            f"{shown_path(cursor.path)}: not a GGUF file but {sniff.describe(head)}",
            "Name a .gguf file (first bytes 'GGUF').",
        )
    cursor.need(_HEADER_BYTES, "the header")
    cursor.pos = 4
    version = cursor.u32("the version")
    if version == VERSION << 24:
        cursor.fail("a big-endian GGUF file; little-endian wanted", "Fetch the usual file.")
    if version != VERSION:
        cursor.fail(f"GGUF version {version}; version {VERSION} wanted", "Convert it anew.")
    n_tensors, n_keys = cursor.u64("the tensor count"), cursor.u64("the key count")
    room = cursor.end - cursor.pos
    for count, least, what in (
        (n_keys, _MIN_KEY_BYTES, "keys"),
        (n_tensors, _MIN_TENSOR_BYTES, "tensors"),
    ):
        if count * least > room:
            cursor.fail(
                f"cut off or damaged: {count:,} {what} take at least "
                f"{_HEADER_BYTES + count * least:,} bytes, the file has {cursor.end:,}",
                CUT_HINT,
            )
        if count > MAX_ENTRIES:
            cursor.fail(f"{count:,} {what}; at most {MAX_ENTRIES:,} expected")
    return n_tensors, n_keys


def _read_keys(cursor: Cursor, n_keys: int) -> dict[str, Slot]:
    slots: dict[str, Slot] = {}
    for number in range(n_keys):
        key = cursor.name(f"key {number}")
        if key in slots:
            cursor.fail(f"key '{printable(key)}' is there twice")
        kind = cursor.u32("the type of a value")
        slots[key] = Slot(kind, cursor.pos)
        skip_value(cursor, kind)
        _check_room(cursor, f"key '{printable(key)}'")
    return slots


def _check_room(cursor: Cursor, what: str) -> None:
    """Refuse a directory that runs into what must be weights.

    The size of the file bounds no length in it: a model has 80 GB, and a sparse file any size.
    """
    if cursor.pos > MAX_DIRECTORY_BYTES:
        cursor.fail(
            f"{what} ends {cursor.pos:,} bytes into the file; keys and tensor table take at "
            f"most {MAX_DIRECTORY_BYTES:,}"
        )


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    value = metadata[key]
    if metadata.kind(key) != _UINT32 or not isinstance(value, int):
        cursor.fail(f"{key} is stored as {kind_name(metadata.kind(key))}; UINT32 wanted")
    if value < 1 or value & (value - 1):
        cursor.fail(f"{key} is {value}; a power of two wanted")
    return value


def _read_tensors(cursor: Cursor, n_tensors: int) -> Iterable[TensorEntry]:
    table: dict[str, TensorEntry] = {}
    for number in range(n_tensors):
        entry = _read_tensor(cursor, number)
        if entry.name in table:
            cursor.fail(f"tensor '{printable(entry.name)}' is there twice")
        table[entry.name] = entry
        _check_room(cursor, f"the entry of tensor '{printable(entry.name)}'")
    return table.values()


def _read_tensor(cursor: Cursor, number: int) -> TensorEntry:
    name = cursor.name(f"the name of tensor {number}")
    shown = printable(name)
    n_dims = cursor.u32(f"the dimension count of '{shown}'")
    if not 1 <= n_dims <= MAX_DIMS:
        cursor.fail(f"tensor '{shown}' has {n_dims} dimensions; 1 to {MAX_DIMS} wanted")
    shape = tuple(cursor.u64(f"a dimension of '{shown}'") for _ in range(n_dims))[::-1]
    type_id = cursor.u32(f"the type of '{shown}'")
    offset = cursor.u64(f"the offset of '{shown}'")
    return TensorEntry(
        name=name,
        shape=shape,
        quant=FORMATS.get(type_id),
        type_id=type_id,
        offset=offset,
        n_bytes=_tensor_bytes(cursor, shown, shape, type_id),
    )


def _tensor_bytes(cursor: Cursor, shown: str, shape: tuple[int, ...], type_id: int) -> int:
    n_values = math.prod(shape)
    if not 0 < n_values < _MAX_ELEMENTS:
        cursor.fail(f"tensor '{shown}' has the impossible shape {list(shape)}")
    block = block_size(type_id)
    if block is None:
        return 0
    values, n_bytes = block
    if shape[-1] % values:
        cursor.fail(
            f"tensor '{shown}' has rows of {shape[-1]} values; "
            f"{type_name(type_id)} wants a multiple of {values}"
        )
    return n_values // values * n_bytes


def _aligned(cursor: Cursor, entry: TensorEntry, alignment: int) -> int:
    if entry.offset % alignment:
        cursor.fail(
            f"tensor '{printable(entry.name)}' starts at {entry.offset:,} in the data; "
            f"a multiple of the alignment {alignment} wanted"
        )
    return entry.offset


def _check_extent(cursor: Cursor, tensors: Iterable[TensorEntry], alignment: int) -> None:
    """Refuse a file that ends before its last tensor does.

    Writers either pad the last tensor or do not; a file that ends inside that padding was cut.
    """
    last = max(tensors, key=lambda entry: entry.offset + entry.n_bytes, default=None)
    if last is None:
        return
    end = last.offset + last.n_bytes
    padded = -(-end // alignment) * alignment
    if cursor.end == end or cursor.end >= padded:
        return
    want = end if cursor.end < end else padded
    raise ModelFileError(
        f"{shown_path(cursor.path)}: cut off or damaged: expected {want:,} bytes "
        f"({fine_size(want)}, to the end of tensor '{printable(last.name)}'), "
        f"the file has {cursor.end:,} ({fine_size(cursor.end)})",
        CUT_HINT,
    )


def _check_overlap(cursor: Cursor, tensors: Iterable[TensorEntry]) -> None:
    previous: TensorEntry | None = None
    for entry in sorted(tensors, key=lambda entry: entry.offset):
        if previous is not None and entry.offset < previous.offset + previous.n_bytes:
            cursor.fail(
                f"tensors '{printable(previous.name)}' and '{printable(entry.name)}' overlap"
            )
        previous = entry
