"""A person's own keys: the `[keys]` table of the settings file, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ds4chat import settings
from ds4chat.errors import SettingsError
from ds4chat.settings_row import nearest
from ds4chat.smallfile import plain, read_toml, shown
from ds4chat.tui.keys import KeyRow

TABLE = "keys"

_NAMED = (
    "escape|delete|insert|home|end|pageup|pagedown|up|down|left|right|space|backspace|tab|enter"
)
_F_KEY = re.compile("f[0-9]+")
_KEY = re.compile(rf"(?:(?:ctrl|alt|shift)\+)*(?:f[1-9]|f1[0-9]|f2[0-4]|[a-z0-9]|{_NAMED})")
# What the prompt needs to be a prompt.
_RESERVED = frozenset(
    {"enter", "shift+enter", "alt+enter", "ctrl+j", "ctrl+m", "tab", "ctrl+i", "space"}
    | {"up", "down", "left", "right", "home", "end", "pageup", "pagedown"}
    | {"backspace", "delete", "shift+space"}
)


def load(path: Path | None) -> dict[str, object]:
    """The `[keys]` table of the settings file; empty where there is none.

    The file was read before by `settings.load`, which reports what is wrong with it.

    Raises:
        SettingsError: `keys` is not a table.
    """
    if path is None or not path.is_file():
        return {}
    table = read_toml(path, settings.MAX_FILE_BYTES).get(TABLE, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{plain(path)}, {TABLE}: {shown(table, 40)} is not a table", _HINT)
    return table


_HINT = 'For example:\n  [keys]\n  toggle-spec = "f9, ctrl+k"'


def remap(rows: Sequence[KeyRow], table: Mapping[str, object]) -> tuple[KeyRow, ...]:
    """The rows with a person's keys; an F-key brings its Alt+digit twin along.

    Args:
        rows: All actions.
        table: Action name to keys: text with commas, or a list of texts.

    Raises:
        SettingsError: an unknown action, an unusable key, or one key for two actions.
    """
    names = {row.name: row for row in rows}
    chosen: dict[str, list[str]] = {}
    for name, raw in table.items():
        if name not in names:
            near = nearest(name, names)
            hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(names)}."
            raise SettingsError(f"[keys]: there is no action {name!r:.60}", hint)
        chosen[name] = _parse(name, raw)
    found = tuple(_row(row, chosen.get(row.name)) for row in rows)
    _refuse_clashes(found)
    taken = {key for row in found for key in row.keys.split(",")}
    return tuple(_with_twins(row, taken) if row.name in chosen else row for row in found)


def _parse(name: str, raw: object) -> list[str]:
    texts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(texts, list) or not texts:
        raise SettingsError(
            f"[keys], {name}: {shown(raw, 40)} is not a key or a list of keys", _HINT
        )
    return [_checked(name, text) for text in texts]


def _checked(name: str, text: object) -> str:
    key = text.strip().lower() if isinstance(text, str) else ""
    if not _KEY.fullmatch(key):
        raise SettingsError(
            f"[keys], {name}: {shown(text, 40)} is no key",
            "Keys are written like f9, ctrl+k, alt+3 or shift+f4.",
        )
    if key in _RESERVED or len(key.removeprefix("shift+")) == 1:
        raise SettingsError(
            f"[keys], {name}: {key!r} is needed for typing", "Take another key."
        )
    return key


def _row(row: KeyRow, keys: list[str] | None) -> KeyRow:
    if keys is None:
        return row
    return replace(row, keys=",".join(dict.fromkeys(keys)), shown=pretty(keys[0]))


def _with_twins(row: KeyRow, taken: Iterable[str]) -> KeyRow:
    keys = row.keys.split(",")
    twins = [f"alt+{key[1]}" for key in keys if _F_KEY.fullmatch(key) and len(key) == 2]
    return replace(row, keys=",".join([*keys, *(twin for twin in twins if twin not in taken)]))


def _refuse_clashes(rows: Iterable[KeyRow]) -> None:
    owners: dict[str, str] = {}
    for row in rows:
        for key in row.keys.split(","):
            if key in owners:
                raise SettingsError(
                    f"[keys]: {key} is the key of both {owners[key]!r} and {row.name!r}",
                    f"Give {owners[key]!r} or {row.name!r} another one in the settings file.",
                )
            owners[key] = row.name


def pretty(key: str) -> str:
    """A key as a person reads it: `F9`, `^K`, `Alt+3`."""
    *modifiers, last = key.split("+")
    if modifiers == ["ctrl"] and len(last) == 1:
        return f"^{last.upper()}"
    names = [{"ctrl": "^"}.get(part, part.capitalize() + "+") for part in modifiers]
    return "".join(names) + (last.upper() if _F_KEY.fullmatch(last) else last.capitalize())
