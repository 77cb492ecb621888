"""Settings that a running chat can change: how each is read from the chat and written to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ds4chat import settings
from ds4chat.protocol.types import Policy, ThinkMode
from ds4chat.settings_row import Row, Value
from ds4chat.tui.controller import ChatController
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.settings_book import SettingsBook

CHANGED = "changed here"
AT_START = "takes effect at the next start"
NEXT_REPLY = "from the next reply on"


class SettingsHost(Protocol):
    """What a change needs of the screen."""

    @property
    def chat(self) -> ChatController:
        """The chat."""

    def set_theme(self, name: str) -> None:
        """Choose another theme."""

    def theme_name(self) -> str:
        """The theme in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A setting of the running chat. `when` says from when on a change holds in a reply."""

    read: Callable[[SettingsHost], Value]
    write: Callable[[SettingsHost, Any], None]
    when: str = NEXT_REPLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A setting as the screen shows it. `note` says when a change will hold, if not yet."""

    row: Row
    value: str
    source: str
    is_live: bool
    note: str = ""


def _sampling(field: str) -> Live:
    def write(host: SettingsHost, value: Any) -> None:
        host.chat.sampling = replace(host.chat.sampling, **{field: value})

    return Live(read=lambda host: getattr(host.chat.sampling, field), write=write)


def _spec(field: str, kind: Callable[[Any], Any] = lambda value: value) -> Live:
    def read(host: SettingsHost) -> Value:
        value: Value = getattr(host.chat.spec, field)
        return str(value) if isinstance(value, Policy) else value

    def write(host: SettingsHost, value: Any) -> None:
        host.chat.set_spec(replace(host.chat.spec, **{field: kind(value)}))

    return Live(read=read, write=write, when="from the next block on")


def _set_max_tokens(host: SettingsHost, value: Any) -> None:
    host.chat.max_tokens = value


def _set_think(host: SettingsHost, value: Any) -> None:
    info = host.chat.info
    default = info.think_default if info is not None else ThinkMode.OFF
    host.chat.set_think(ThinkMode(value) if value is not None else default)


LIVE = {
    "spec": _spec("enabled"),
    "policy": _spec("policy", Policy),
    "draft_max": _spec("draft_max"),
    "confidence": _spec("confidence_threshold"),
    "temp": _sampling("temperature"),
    "top_p": _sampling("top_p"),
    "top_k": _sampling("top_k"),
    "min_p": _sampling("min_p"),
    "seed": _sampling("seed"),
    "max_tokens": Live(read=lambda host: host.chat.max_tokens, write=_set_max_tokens),
    "system": Live(
        read=lambda host: host.chat.conversation.system,
        write=lambda host, value: host.chat.set_system(value),
    ),
    "think": Live(read=lambda host: str(host.chat.think), write=_set_think),
    "theme": Live(
        read=lambda host: host.theme_name(),
        write=lambda host, value: host.set_theme(value),
        when="at once",
    ),
}


def shown(host: SettingsHost, book: SettingsBook) -> list[Shown]:
    """All settings in the order of the table, with the values that hold now or next."""
    return [_shown(host, book, row) for row in settings.rows()]


def _shown(host: SettingsHost, book: SettingsBook, row: Row) -> Shown:
    value: Value = getattr(book.start, row.name)
    source = str(book.start.origin(row.name))
    note = "next start" if row.name in book.for_next_start else ""
    live = LIVE.get(row.name)
    if live is not None:
        now = live.read(host)
        if now != value and not _is_the_programs_choice(row, value):
            source = CHANGED
        value = now
        note = "next reply" if row.name in host.chat.owed else ""
    return Shown(
        row=row, value=words(value), source=source, is_live=live is not None, note=note
    )


def _is_the_programs_choice(row: Row, value: Value) -> bool:
    """Whether nothing was asked for, so that the value in use is the program's own."""
    return row.name in ("think", "theme") and value in (None, "")


def words(value: Value) -> str:
    """A value as a person writes it."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return clean_line(str(value)) or "(empty)"


def change(host: SettingsHost, book: SettingsBook, row: Row, raw: object) -> str:
    """Change a setting and keep it; returns what to say.

    Raises:
        SettingsError: the value cannot be used, or, after it was taken up, not be kept.
    """
    value = row.parse(raw, f"/settings {row.name}")
    live = LIVE.get(row.name)
    if live is not None:
        when = _take_up(host, live, row.name, value)
        more = book.keep(row, value)
    else:
        when = f" {AT_START}"
        more = book.keep(row, value)
        book.for_next_start.add(row.name)
    return f"{row.name}: {words(value)}{when}{more}"


def _take_up(host: SettingsHost, live: Live, name: str, value: Value) -> str:
    """Change the running chat; returns from when on it holds, if not from now on."""
    live.write(host, value)
    if not host.chat.is_busy:
        return ""
    if live.when == NEXT_REPLY:
        host.chat.owed.add(name)
    return f", {live.when}"


def following(row: Row, value: str) -> str | None:
    """The next value of a setting with few values; None for one that must be typed."""
    choices = ["true", "false"] if row.kind is bool else list(row.choices)
    if not choices:
        return None
    return (
        choices[(choices.index(value) + 1) % len(choices)] if value in choices else choices[0]
    )
