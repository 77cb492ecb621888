"""A record as a line and back.

A line is a JSON object `{"kind": ..., "n": ..., "at": ..., fields ..., "sum": "xxxxxxxx"}` and
a line feed. `sum` is the CRC-32, eight hex digits, of the line's UTF-8 bytes before `,"sum"`.
Fields that this program does not know are passed over.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
import zlib
from collections.abc import Callable, Hashable
from enum import StrEnum
from functools import cache
from typing import Any

from ds4chat.protocol.types import Source, Span, Token
from ds4chat.store.records import KINDS, Entry, Record, Unknown, kind_of

MAX_LINE_BYTES = 64 * 1024 * 1024
_SUM = b',"sum":"'
_TAIL_BYTES = len(_SUM) + 8 + len(b'"}')
_N_SPAN = 7


class BadLineError(ValueError):
    """A line cannot be used; the text says why."""


def encode(entry: Entry) -> bytes:
    """`entry` as a line, line feed included.

    Raises:
        ValueError: the line would be longer than `MAX_LINE_BYTES`.
    """
    if isinstance(entry.record, Unknown):
        return entry.record.raw.encode() + b"\n"
    fields = {"kind": kind_of(entry.record), "n": entry.n, "at": entry.at}
    fields |= {
        name: value
        for name, value in (("turns", entry.turns), ("check", entry.check))
        if value is not None
    }
    head = _dump(fields | plain(entry.record))[:-1]
    line = head + _SUM + _sum(head) + b'"}\n'
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a line of {len(line):,} bytes; the limit is {MAX_LINE_BYTES:,}")
    return line


def decode(line: bytes) -> Entry:
    """Read one line, without its line feed.

    Raises:
        BadLineError: it is damaged, or its fields have the wrong types.
    """
    if len(line) > MAX_LINE_BYTES:
        raise BadLineError(f"longer than {MAX_LINE_BYTES:,} bytes")
    if not is_sound(line):
        raise BadLineError("its check sum does not fit: damaged, or changed by hand")
    return _entry(parse(line), line)


def is_sound(line: bytes) -> bool:
    """Whether a line, without its line feed, ends with the sum of what stands before."""
    head, tail = line[:-_TAIL_BYTES], line[-_TAIL_BYTES:]
    return tail == _SUM + _sum(head) + b'"}'


def parse(line: bytes) -> dict[str, Any]:
    """A line as a JSON object, its sum not looked at. Raises BadLineError."""
    try:
        fields = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise BadLineError("not JSON") from error
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    return fields


def _entry(fields: dict[str, Any], line: bytes) -> Entry:
    kind = fields.get("kind")
    shown = f"{kind!r:.40}" if isinstance(kind, str) else "no kind"
    try:
        record: Record
        if not isinstance(kind, str):
            raise TypeError(f"wanted text, got {type(kind).__name__}")
        if kind in KINDS:
            record = _build(KINDS[kind], fields)
        else:
            record = Unknown(kind=kind, raw=line.decode())
        return Entry(
            n=_int(fields["n"]),
            at=_text(fields["at"]),
            record=record,
            turns=_converter(int | None)(fields.get("turns")),
            check=_converter(str | None)(fields.get("check")),
        )
    except KeyError as error:
        raise BadLineError(f"{shown}: no field {error.args[0]!r:.40}") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadLineError(f"{shown}: {str(error)[:200]}") from error


def _sum(head: bytes) -> bytes:
    return b"%08x" % zlib.crc32(head)


def _dump(fields: dict[str, Any]) -> bytes:
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # lone surrogates travel as escapes
        return json.dumps(fields, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """A record, or any value in one, as JSON has it."""
    if isinstance(value, Span):
        return _plain_span(value)
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # "nan", "inf", "-inf": JSON has no such numbers
    return value


def _plain_span(span: Span) -> list[Any]:
    token = span.token
    row = [
        span.text, token.id, token.source, token.round, token.position,
        plain(token.confidence), plain(token.margin),
    ]  # fmt: skip
    return row if token.logit is None else [*row, plain(token.logit)]


# Reading: a converter for each type, made once; a long transcript has a million values.

Convert = Callable[[Any], Any]


def _build(kind: type[Any], fields: Any) -> Any:
    if not isinstance(fields, dict):
        raise TypeError(f"{kind.__name__}: wanted an object, got {type(fields).__name__}")
    found = {
        name: convert(fields[name])
        for name, convert in _fields(typing.cast(Hashable, kind))
        if name in fields
    }
    return kind(**found)


@cache
def _fields(kind: Hashable) -> tuple[tuple[str, Convert], ...]:
    hints = typing.get_type_hints(typing.cast(type[Any], kind))
    return tuple((name, _converter(hint)) for name, hint in hints.items())


@cache
def _converter(hint: Any) -> Convert:
    """What turns a JSON value into `hint`; raises TypeError or ValueError for others."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (_converter(o) for o in typing.get_args(hint) if o is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _tuple_converter(typing.get_args(hint))
    if hint is Span:
        return _build_span
    if dataclasses.is_dataclass(hint):
        return lambda value: _build(typing.cast(type[Any], hint), value)
    if issubclass(hint, StrEnum):
        return _word_converter(hint)
    return _number if hint is float else _scalar_converter(hint)


def _tuple_converter(args: tuple[Any, ...]) -> Convert:
    inner = [_converter(arg) for arg in args if arg is not Ellipsis]

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError(f"wanted a list, got {value!r:.40}")
        if args[1:] == (Ellipsis,):
            return tuple(map(inner[0], value))
        return tuple(one(item) for one, item in zip(inner, value, strict=True))

    return convert


def _word_converter(kind: type[StrEnum]) -> Convert:
    words = {str(word): word for word in kind}

    def convert(value: Any) -> Any:
        found = words.get(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"{value!r:.40} is no {kind.__name__}")
        return found

    return convert


def _scalar_converter(kind: type[Any]) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"wanted {kind.__name__}, got {value!r:.40}")
        return value

    return convert


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int or value in ("nan", "inf", "-inf"):
        return float(value)
    raise TypeError(f"wanted float, got {value!r:.40}")


_int, _text = _scalar_converter(int), _scalar_converter(str)
_source = _word_converter(Source)


def _build_span(row: Any) -> Span:
    if not isinstance(row, list) or len(row) < _N_SPAN:
        raise TypeError(f"a token: wanted a list of {_N_SPAN}, got {row!r:.40}")
    confidence, logit = row[5], row[_N_SPAN] if len(row) > _N_SPAN else None
    return Span(
        text=_text(row[0]),
        token=Token(
            id=_int(row[1]),
            source=_source(row[2]),
            round=_int(row[3]),
            position=_int(row[4]),
            confidence=None if confidence is None else _number(confidence),
            margin=_number(row[6]),
            logit=None if logit is None else _number(logit),
        ),
    )
