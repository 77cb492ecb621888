"""Colour themes: one TOML file each, checked, turned into Textual's themes.

A theme carries the provenance palette too; its source colours are also theme variables
(`$source-accepted` ...), for the widgets around the transcript.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.theme import Theme

from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Source
from ds4chat.settings_row import nearest
from ds4chat.smallfile import plain, read_toml, shown
from ds4chat.tui.palette import Palette

DEFAULT = "dark"
MAX_BYTES = 64 * 1024
MAX_COLOURS = 16

SCREEN = (
    "primary", "secondary", "accent", "success", "warning", "error",
    "foreground", "background", "surface", "panel",
)  # fmt: skip
SOURCES = tuple(str(source) for source in Source)
SCALES = ("position", "confidence")

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_TABLES = ("is_dark", "screen", "sources", *SCALES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTheme:
    """A theme for Textual and the colours of provenance that go with it."""

    screen: Theme
    palette: Palette


def load_themes(folders: Iterable[Path]) -> dict[str, ChatTheme]:
    """Read every `*.toml` in the folders; a later folder replaces names of an earlier one.

    Raises:
        SettingsError: a file cannot be used; the message names it and the place.
    """
    themes: dict[str, ChatTheme] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            themes[path.stem] = load_theme(path)
    return themes


def pick(themes: Mapping[str, ChatTheme], name: str) -> ChatTheme:
    """The theme of that name, or the default one for an empty name.

    Raises:
        SettingsError: there is none of that name.
    """
    found = themes.get(name or DEFAULT)
    if found is None:
        near = nearest(name, themes)
        hint = (
            f"Did you mean {near!r}?" if near else f"There are: {', '.join(themes) or 'none'}."
        )
        raise SettingsError(f"there is no theme {name or DEFAULT!r:.60}", hint)
    return found


def load_theme(path: Path) -> ChatTheme:
    """Read one theme file. Raises SettingsError."""
    return _build(path, read_toml(path, MAX_BYTES))


def _build(path: Path, tables: dict[str, Any]) -> ChatTheme:
    where = plain(path)
    _check_names(where, tables, _TABLES)
    is_dark = tables["is_dark"]
    if not isinstance(is_dark, bool):
        raise SettingsError(f"{where}, is_dark: {shown(is_dark, 40)} is not true or false")
    screen = _colours(where, "screen", tables["screen"], SCREEN)
    sources = _colours(where, "sources", tables["sources"], SOURCES)
    palette = Palette(
        sources={Source(name): colour for name, colour in sources.items()},
        positions=_scale(where, "position", tables["position"]),
        confidences=_scale(where, "confidence", tables["confidence"]),
        neutral=sources[Source.PLAIN],
    )
    theme = Theme(
        name=f"ds4-{path.stem}",
        dark=is_dark,
        primary=screen["primary"],
        secondary=screen["secondary"],
        accent=screen["accent"],
        success=screen["success"],
        warning=screen["warning"],
        error=screen["error"],
        foreground=screen["foreground"],
        background=screen["background"],
        surface=screen["surface"],
        panel=screen["panel"],
        variables={f"source-{name}": colour for name, colour in sources.items()},
    )
    return ChatTheme(screen=theme, palette=palette)


def _colours(file: str, name: str, table: Any, keys: tuple[str, ...]) -> dict[str, str]:
    if not isinstance(table, dict):
        raise SettingsError(f"{file}, {name}: {shown(table, 40)} is not a table")
    _check_names(f"{file}, [{name}]", table, keys)
    return {key: _colour(f"{file}, {name}.{key}", table[key]) for key in keys}


def _scale(file: str, name: str, table: Any) -> tuple[str, ...]:
    where = f"{file}, [{name}]"
    if not isinstance(table, dict):
        raise SettingsError(f"{where}: {shown(table, 40)} is not a table")
    _check_names(where, table, ("colours",))
    colours = table["colours"]
    if not isinstance(colours, list) or not 2 <= len(colours) <= MAX_COLOURS:
        raise SettingsError(f"{where}: colours wants a list of 2 to {MAX_COLOURS} colours")
    return tuple(_colour(f"{where} {i}", colour) for i, colour in enumerate(colours, start=1))


def _check_names(where: str, found: Mapping[str, Any], wanted: tuple[str, ...]) -> None:
    for name in found:
        if name not in wanted:
            near = nearest(name, wanted)
            raise SettingsError(
                f"{where}: unknown name {name!r:.60}", f"Did you mean {near!r}?" if near else ""
            )
    missing = [name for name in wanted if name not in found]
    if missing:
        raise SettingsError(f"{where}: {missing[0]!r} is missing")


def _colour(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _COLOUR.fullmatch(value):
        raise SettingsError(
            f"{where}: {shown(value, 40)} is not a colour", "Write it as #rrggbb."
        )
    return value
