"""Commands and events as lines: ASCII JSON, one object a line, of bounded length."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Hashable
from enum import StrEnum
from functools import cache
from typing import Any

from ds4chat.errors import ProtocolError
from ds4chat.protocol import commands, events
from ds4chat.protocol.commands import Command
from ds4chat.protocol.events import Event

MAX_LINE_BYTES = 16 * 1024 * 1024
FREE_LINE_BYTES, MAX_PARTS = 2 * 1024 * 1024, 262_144
"""A line longer than the first may hold so many lists, objects and texts. They are what makes a
line large in memory: an empty list of 3 bytes takes 64. Numbers, such as the ids of a long
context, are not counted."""

_COMMANDS: dict[str, type[Any]] = {c.__name__: c for c in typing.get_args(commands.Command)}
_EVENTS: dict[str, type[Any]] = {e.__name__: e for e in typing.get_args(events.Event)}


def encode(record: Command | Event) -> str:
    """Return `record` as one ASCII JSON line, newline included."""
    fields = _plain(record)
    return json.dumps({"type": type(record).__name__, **fields}, ensure_ascii=True) + "\n"


def decode_command(line: str) -> Command:
    """Read a command line. Raises ProtocolError for anything else."""
    return typing.cast(Command, _decode(line, _COMMANDS, "command"))


def decode_event(line: str) -> Event:
    """Read an event line. Raises ProtocolError for anything else."""
    return typing.cast(Event, _decode(line, _EVENTS, "event"))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _n_parts(line: str) -> int:
    """Lists, objects and texts of a line; what stands in a text does not count."""
    line = line.replace("\\\\", "").replace('\\"', "")  # what is left of `"` are ends of texts
    n_texts = line.count('"') // 2
    if n_texts > MAX_PARTS:
        return n_texts
    bare = line.split('"')[::2]
    return n_texts + sum(part.count("[") + part.count("{") for part in bare)


def _decode(line: str, kinds: dict[str, type[Any]], what: str) -> Any:
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(
            f"{what} line of {len(line):,} bytes; the limit is {MAX_LINE_BYTES:,}"
        )
    if len(line) > FREE_LINE_BYTES and _n_parts(line) > MAX_PARTS:
        raise ProtocolError(f"{what} line of more than {MAX_PARTS:,} parts: {line[:80]!r}")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{what} line is not JSON: {line[:80]!r}") from error
    if not isinstance(fields, dict):
        raise ProtocolError(f"{what} line is not a JSON object: {line[:80]!r}")
    name = fields.pop("type", "")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolError(f"unknown {what}: {line[:80]!r}")
    try:
        return _build(kind, fields)
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"{what} {kind.__name__}: {str(error)[:200]}") from error


def _build(kind: type[Any], fields: Any) -> Any:
    if not isinstance(fields, dict):
        raise TypeError(f"{kind.__name__} wants an object, got {type(fields).__name__}")
    hints = _hints(typing.cast(Hashable, kind))
    unknown = sorted(set(fields) - set(hints))
    if unknown:
        raise TypeError(f"unknown field {unknown[0]!r:.60}")
    return kind(**{name: _convert(hints[name], value) for name, value in fields.items()})


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(typing.cast(type[Any], kind))


def _convert(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        return _convert(next(o for o in options if o is not type(None)), value)
    if origin is tuple:
        return _convert_tuple(typing.get_args(hint), value)
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type[Any], hint), value)
    return _convert_scalar(hint, value)


def _convert_tuple(args: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise TypeError(f"wanted a list, got {type(value).__name__}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_convert(args[0], item) for item in value)
    return tuple(_convert(a, item) for a, item in zip(args, value, strict=True))


def _convert_scalar(hint: Any, value: Any) -> Any:
    if issubclass(hint, StrEnum):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise TypeError(f"wanted {hint.__name__}, got {value!r:.40}")
    return value
