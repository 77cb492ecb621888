"""Protocol lines in both directions, the files of a person's settings, and themes."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from ds4chat import paths, settings
from ds4chat.client.wire import Ledger, lines
from ds4chat.engine import owner
from ds4chat.engine.host_inbox import UNKNOWN_REQUEST, Inbox
from ds4chat.errors import ProtocolError
from ds4chat.protocol import codec, commands, events
from ds4chat.protocol.events import Event, Refused
from ds4chat.tui import keymap, themes
from ds4chat.tui.history import History
from ds4chat.tui.keys import SCREEN_KEYS
from tests.fuzz import mutate_json, mutate_toml
from tests.fuzz.case import Files, Odd, Target
from tests.fuzz.guard import kind_of
from tests.fuzz.mutate import NASTY, damage, hostile_text

_LINES = "lines"
_LONGEST = 24 << 20  # bytes of a line: more than any reader takes
_CONFIG = "config/settings.toml"
_ENVIRON = "environ.json"
_HISTORY = "config/history"
_OWNER = "config/owner"


# The protocol.


@cache
def records() -> tuple[str, ...]:
    """A line of every command and every event, each field filled."""
    kinds = (*typing.get_args(commands.Command), *typing.get_args(events.Event))
    return tuple(codec.encode(_filled(kind)) for kind in kinds)


def _filled(hint: Any) -> Any:
    """A value of a type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _filled(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return tuple(_filled(arg) for arg in args if arg is not Ellipsis)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return typing.cast(Any, hint)(**{name: _filled(kind) for name, kind in hints.items()})
    if issubclass(hint, StrEnum):
        return next(iter(hint))
    simple: dict[type, Any] = {str: "text", int: 3, float: 0.5, bool: True}
    return simple[hint]


def _make_lines(rng: random.Random) -> Files:
    raw = b""
    for _ in range(rng.choice((1, 1, 1, 3))):
        raw += _one_line(rng) + rng.choice((b"\n", b"\n", b"\n", b"", b"\r\n", b"\n\n"))
    return {_LINES: raw}


def _one_line(rng: random.Random) -> bytes:
    known = records()
    row = json.loads(rng.choice(known))
    if rng.random() < 0.1:
        row["type"] = json.loads(rng.choice(known))["type"]
    row = mutate_json.mutated(rng, row) if rng.random() < 0.9 else row
    raw = mutate_json.write(row, ascii_only=rng.random() < 0.7).encode("utf-8", "surrogatepass")
    raw = raw[:_LONGEST]
    return damage(rng, raw) if rng.random() < 0.25 else raw


def _run_lines(folder: Path) -> str:
    raw = (folder / _LINES).read_bytes()
    labels: list[str] = []
    ledger = Ledger()
    for line in lines(io.BytesIO(raw), 1 << 22):
        text = line.decode("ascii", "replace")
        command = _answer(codec.decode_command, text)
        event = _answer(codec.decode_event, text)
        if isinstance(event, Event):
            ledger.received(event)
        refused = command if text.find("_id") % 2 else event  # either direction's words
        labels.append(refused if isinstance(refused, str) else type(refused).__name__)
    for owed in ledger.close("the engine is gone"):
        codec.encode(owed)
    _feed_host(raw)
    return labels[0] if labels else "nothing"


def _answer(decode: Callable[[str], Any], text: str) -> Any:
    """What a line means, or the kind of words that refuse it; its own line says the same."""
    try:
        record = decode(text)
    except ProtocolError as error:
        assert error.message.isprintable(), error.message[:300]
        assert len(error.message) < 1000, error.message[:300]
        return kind_of(error, Path("/nowhere"))
    line = codec.encode(record)
    assert line.isascii()
    assert codec.encode(decode(line)) == line
    return record


def _feed_host(raw: bytes) -> None:
    """The host's reader answers each line that is no command, and goes on with the next."""
    answers: list[Event] = []
    inbox = Inbox(answers.append, lambda: None)
    rows = raw.split(b"\n")
    inbox.read([*rows, b'{"type":"Shutdown","request_id":77}'])
    told = [event for event in answers if isinstance(event, Refused)]
    n_bad = sum(bool(row.strip()) and not _decodes(row) for row in rows)
    assert sum(event.request_id == UNKNOWN_REQUEST for event in told) >= n_bad
    last = None
    while not inbox.is_empty:
        last = inbox.get() or last
    assert isinstance(last, commands.Shutdown), last


def _decodes(row: bytes) -> bool:
    try:
        codec.decode_command(row.decode("ascii", "replace"))
    except ProtocolError:
        return False
    return True


# Settings.


_SETTINGS: dict[str, Any] = {
    "model": "m.gguf", "temp": 0.7, "top_k": 40, "ctx": 4096, "spec": True, "theme": "dark",
    "seed": 7, "think": "high", "keys": {"toggle-spec": "f9, ctrl+k"},
}  # fmt: skip


def _make_settings(rng: random.Random) -> Files:
    files: dict[str, bytes | Odd] = {_CONFIG: mutate_toml.mutated(rng, _SETTINGS)}
    if rng.random() < 0.4:
        files[_ENVIRON] = json.dumps(_environ(rng)).encode()
    if rng.random() < 0.1:
        files[_HISTORY] = _history(rng)
    if rng.random() < 0.1:
        words = mutate_json.mutated(rng, {"pid": 3, "since": 1.5e9})
        files[_OWNER] = mutate_json.write(words).encode("utf-8", "surrogatepass")
    if rng.random() < 0.02:
        files[rng.choice((_CONFIG, _HISTORY))] = rng.choice(tuple(Odd))
    return files


def _environ(rng: random.Random) -> dict[str, str]:
    """Variables; the command line's values go the same way."""
    found = {}
    for _ in range(rng.randint(1, 3)):
        name = rng.choice([row.variable for row in settings.rows()])
        value = rng.choice((hostile_text(rng), mutate_toml.hostile_value(rng), "1", "-1"))
        found[name if rng.random() < 0.95 else f"DS4CHAT_{hostile_text(rng)}"] = value
    return found


def _history(rng: random.Random) -> bytes:
    rows: list[bytes] = []
    for _ in range(rng.choice((3, 3, 3000))):
        value = mutate_json.hostile(rng) if rng.random() < 0.02 else hostile_text(rng)[:300]
        rows.append(mutate_json.write(value).encode("utf-8", "surrogatepass"))
    return b"\n".join(rows)


def _run_settings(folder: Path) -> str:
    _use_history(folder / _HISTORY)
    _read_owner(folder / _OWNER)
    environ = {}
    if (folder / _ENVIRON).exists():
        environ = json.loads((folder / _ENVIRON).read_bytes())
    file = folder / _CONFIG
    found = settings.load({}, config_file=file, environ=environ)
    for row in settings.rows():
        value = getattr(found, row.name)
        assert value is None or isinstance(value, bool | int | float | str)
        found.origin(row.name)
    keymap.remap(SCREEN_KEYS, keymap.load(file))
    return "loaded"


def _use_history(path: Path) -> None:
    history = History(path)
    while history.older("") is not None:
        pass


def _read_owner(path: Path) -> None:
    if path.is_file():
        fd = os.open(path, os.O_RDONLY)
        try:
            assert str(owner._read(fd, path)).isprintable()
        finally:
            os.close(fd)


# Themes.


@cache
def _theme() -> dict[str, Any]:
    return tomllib.loads((paths.themes_dir() / "dark.toml").read_text(encoding="utf-8"))


def _make_theme(rng: random.Random) -> Files:
    raw: bytes | Odd = mutate_toml.mutated(rng, _theme())
    if rng.random() < 0.01:
        raw = rng.choice(tuple(Odd))
    name = "own"
    if rng.random() < 0.05:
        name = rng.choice([text for text in NASTY if text and len(text) < 60]).replace("/", "_")
        name = name.replace("\0", "_")
    return {f"themes/{name}.toml": raw}


def _run_theme(folder: Path) -> str:
    found = themes.load_themes([folder / "themes"])
    for theme in found.values():
        theme.screen.to_color_system().generate()
    themes.pick(found, next(iter(found), "x"))
    return f"{len(found)} themes"


def _prepare() -> None:
    records()
    _theme()


def _all() -> Iterator[Target]:
    yield Target(name="protocol", make=_make_lines, run=_run_lines, prepare=_prepare)
    yield Target(
        name="settings", make=_make_settings, run=_run_settings, prepare=_prepare,
        may_write="config",
    )  # fmt: skip
    yield Target(name="themes", make=_make_theme, run=_run_theme, prepare=_prepare)


TARGETS = tuple(_all())
