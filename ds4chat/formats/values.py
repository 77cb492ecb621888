"""Typed values of a GGUF file: a bounds-checked cursor, and lazy metadata over it.

Nothing is allocated before its size has been checked against the bytes that are left.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import ModelFileError
from ds4chat.formats.show import printable, shown_path

MetaValue = int | float | bool | str | list[str] | NDArray[Any] | tuple[Any, ...]
"""A scalar; an array of strings (list), of numbers (NumPy, read-only) or of arrays (tuple)."""

STRING, ARRAY, BOOL = 8, 9, 7
MAX_NESTING = 8
MAX_WALKED = 1 << 22  # strings in arrays, of all keys: each costs a step and a record
_ARRAY_STEPS = 64  # an array in an array costs as much as so many strings
_MAX_NAME_BYTES = 65_535  # the format's own limit for keys; nobody's tensor names come near

_DTYPES: dict[int, str] = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    BOOL: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_NAMES: dict[int, str] = {
    0: "UINT8",
    1: "INT8",
    2: "UINT16",
    3: "INT16",
    4: "UINT32",
    5: "INT32",
    6: "FLOAT32",
    BOOL: "BOOL",
    STRING: "STRING",
    ARRAY: "ARRAY",
    10: "UINT64",
    11: "INT64",
    12: "FLOAT64",
}
_WIDTHS = {kind: np.dtype(dtype).itemsize for kind, dtype in _DTYPES.items()}
_SMALLEST = {**_WIDTHS, STRING: 8, ARRAY: 12}  # least bytes of one element
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

CUT_HINT = "The download may be incomplete: fetch the file again and compare its size."


def kind_name(kind: int) -> str:
    """The name of a metadata type id."""
    return _NAMES.get(kind, f"type {kind}")


class Cursor:
    """A position in a mapped file that never leaves it."""

    __slots__ = ("buffer", "end", "n_walked", "path", "pos", "where")

    def __init__(self, buffer: mmap.mmap, path: str, pos: int = 0) -> None:
        self.buffer = buffer
        self.end = len(buffer)
        self.path = path
        self.pos = pos
        self.n_walked = 0
        self.where = "the header"

    def fail(self, what: str, hint: str = "") -> NoReturn:
        """Refuse the file, naming the place."""
        place = f"in {self.where}, at byte {self.pos:,} of {self.end:,}"
        hint = hint or "The file is damaged: fetch it again."
        raise ModelFileError(f"{shown_path(self.path)}: {what} ({place})", hint)

    def need(self, n_bytes: int, what: str) -> None:
        """Refuse the file if fewer than `n_bytes` are left for `what`."""
        if n_bytes > self.end - self.pos:
            raise ModelFileError(
                f"{shown_path(self.path)}: cut off or damaged in {self.where}: {what} at byte "
                f"{self.pos:,} needs {n_bytes:,} bytes; expected at least "
                f"{self.pos + n_bytes:,} bytes, the file has {self.end:,}",
                CUT_HINT,
            )

    def charge(self, count: int) -> None:
        """Refuse the file once it asks for absurdly many single steps."""
        self.n_walked += count
        if self.n_walked > MAX_WALKED:
            self.fail(
                f"arrays hold absurdly many strings or arrays; at most {MAX_WALKED:,} "
                f"strings or {MAX_WALKED // _ARRAY_STEPS:,} arrays expected"
            )

    def u32(self, what: str) -> int:
        """The next 4 bytes as an unsigned number."""
        self.need(4, what)
        self.pos += 4
        return int(_U32.unpack_from(self.buffer, self.pos - 4)[0])

    def u64(self, what: str) -> int:
        """The next 8 bytes as an unsigned number."""
        self.need(8, what)
        self.pos += 8
        return int(_U64.unpack_from(self.buffer, self.pos - 8)[0])

    def name(self, what: str) -> str:
        """A key or a tensor name: a short UTF-8 string."""
        n_bytes = self.u64(f"the length of {what}")
        self.need(n_bytes, what)
        if n_bytes > _MAX_NAME_BYTES:
            self.fail(f"{what} is {n_bytes:,} bytes long, at most {_MAX_NAME_BYTES:,} expected")
        return self.text(n_bytes, what)

    def text(self, n_bytes: int, what: str) -> str:
        """The next `n_bytes` (already checked) as UTF-8."""
        raw = self.buffer[self.pos : self.pos + n_bytes]
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8: {printable(ascii(raw[:40]))}")
        self.pos += n_bytes
        return text


@dataclass(frozen=True, slots=True)
class ArrayHead:
    """Element type and length of an array, and where its elements start."""

    kind: int
    count: int
    pos: int


def array_head(cursor: Cursor) -> ArrayHead:
    """Read an array's head and check that its smallest possible content fits in the file."""
    kind = cursor.u32("the type of an array")
    count = cursor.u64("the length of an array")
    if kind not in _SMALLEST:
        cursor.fail(f"an array has elements of unknown type {kind}")
    cursor.need(count * _SMALLEST[kind], f"an array of {count:,} {kind_name(kind)} values")
    return ArrayHead(kind, count, cursor.pos)


def skip_value(cursor: Cursor, kind: int, depth: int = 0) -> None:
    """Move past a value, checking every length in it."""
    if kind in _WIDTHS:
        cursor.need(_WIDTHS[kind], "a value")
        cursor.pos += _WIDTHS[kind]
    elif kind == STRING:
        n_bytes = cursor.u64("the length of a string")
        cursor.need(n_bytes, "a string")
        cursor.pos += n_bytes
    elif kind == ARRAY:
        _skip_array(cursor, depth)
    else:
        cursor.fail(f"a key has a value of unknown type {kind}")


def _skip_array(cursor: Cursor, depth: int) -> None:
    if depth >= MAX_NESTING:
        cursor.fail(f"arrays are nested deeper than {MAX_NESTING} levels")
    head = array_head(cursor)
    if head.kind in _WIDTHS:
        cursor.pos += head.count * _WIDTHS[head.kind]
        return
    cursor.charge(head.count if head.kind == STRING else head.count * _ARRAY_STEPS)
    if head.kind == STRING:
        _skip_strings(cursor, head.count)
    else:
        for _ in range(head.count):
            _skip_array(cursor, depth + 1)


def _skip_strings(cursor: Cursor, count: int) -> None:
    """Walk `count` strings; the loop of a 129,280-token vocabulary, so kept bare."""
    pos, buffer, unpack = cursor.pos, cursor.buffer, _U64.unpack_from
    try:
        for _ in range(count):
            pos += 8 + unpack(buffer, pos)[0]
    except (struct.error, OverflowError):
        pos = cursor.end + 1
    cursor.need(pos - cursor.pos, f"an array of {count:,} strings")
    cursor.pos = pos


def read_value(cursor: Cursor, kind: int) -> MetaValue:
    """Decode a value that `skip_value` has already walked."""
    if kind == ARRAY:
        return _read_array(cursor)
    if kind == STRING:
        return cursor.text(cursor.u64("the length of a string"), "a string")
    raw = cursor.buffer[cursor.pos : cursor.pos + _WIDTHS[kind]]
    value: int | float = np.frombuffer(raw, dtype=_DTYPES[kind])[0].item()
    return bool(value) if kind == BOOL else value


def _read_array(cursor: Cursor) -> MetaValue:
    head = array_head(cursor)
    if head.kind == STRING:
        return _read_strings(cursor, head.count)
    if head.kind == ARRAY:
        return tuple(_read_array(cursor) for _ in range(head.count))
    n_bytes = head.count * _WIDTHS[head.kind]
    raw = cursor.buffer[head.pos : head.pos + n_bytes]
    cursor.pos += n_bytes
    numbers = np.frombuffer(raw, dtype=_DTYPES[head.kind])
    return numbers.astype(bool) if head.kind == BOOL else numbers


def _read_strings(cursor: Cursor, count: int) -> list[str]:
    pos, buffer, unpack = cursor.pos, cursor.buffer, _U64.unpack_from
    strings: list[str] = []
    append = strings.append
    try:
        for _ in range(count):
            start = pos + 8
            pos = start + unpack(buffer, pos)[0]
            append(str(buffer[start:pos], "utf-8"))
    except UnicodeDecodeError:
        cursor.fail(f"string {len(strings):,} of an array is not UTF-8")
    cursor.pos = pos
    return strings


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a key's value lies: its type and the byte after the type."""

    kind: int
    pos: int


class Metadata(Mapping[str, MetaValue]):
    """The keys of a file, decoded when first asked for and then kept."""

    def __init__(self, cursor: Cursor, slots: Mapping[str, Slot]) -> None:
        self._cursor = cursor
        self._slots = slots
        self._decoded: dict[str, MetaValue] = {}

    def __getitem__(self, key: str) -> MetaValue:
        if key not in self._decoded:
            self._decoded[key] = read_value(self._at(key), self._slots[key].kind)
        return self._decoded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def kind(self, key: str) -> int:
        """The type id of a key's value."""
        return self._slots[key].kind

    def count(self, key: str) -> int:
        """Elements of an array, without decoding it; 1 for a scalar; 0 for an absent key."""
        if key not in self._slots:
            return 0
        return self.head(key).count if self.kind(key) == ARRAY else 1

    def head(self, key: str) -> ArrayHead:
        """Element type and length of an array."""
        return array_head(self._at(key))

    def describe(self, key: str) -> str:
        """The value's type for a message: `UINT32`, `array of 43 INT32`."""
        if self.kind(key) != ARRAY:
            return kind_name(self.kind(key))
        head = self.head(key)
        return f"array of {head.count:,} {kind_name(head.kind)}"

    def _at(self, key: str) -> Cursor:
        cursor = Cursor(self._cursor.buffer, self._cursor.path, self._slots[key].pos)
        cursor.where = f"the value of key {printable(key)!r}"
        return cursor
