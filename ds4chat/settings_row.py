"""One row of the table of settings: its words, and which values it takes."""

from __future__ import annotations

import difflib
import math
import typing
from collections.abc import Iterable
from dataclasses import dataclass

from ds4chat.errors import SettingsError
from ds4chat.smallfile import shown

ENV_PREFIX = "DS4CHAT_"
_MAX_INT = (1 << 63) - 1
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_ALIKE = 0.6  # share of common letters from which on one word may be meant by another

_SYNONYMS: dict[tuple[str, object], str] = {("think", "on"): "high"}  # words of commands

Value = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the table knows about one setting.

    `flags` take a value; `shortcuts` are flags that stand for one. `is_optional` settings also
    take the word `auto`, which is None: the program decides.
    """

    name: str
    kind: type[bool] | type[int] | type[float] | type[str]
    is_optional: bool
    default: Value
    doc: str
    choices: tuple[str, ...]
    bounds: tuple[float, float] | None
    flags: tuple[str, ...]
    shortcuts: tuple[tuple[str, Value], ...]
    metavar: str

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return ENV_PREFIX + self.name.upper()

    def parse(self, raw: object, where: str) -> Value:
        """Check a value from any layer; `where` says in words which one.

        Raises:
            SettingsError: wrong type, not a choice, or out of range.
        """
        if self.is_optional and (raw is None or raw == "auto"):
            return None
        value = self._typed(raw)
        if value is None:
            raise self._refuse(raw, where)
        value = _SYNONYMS.get((self.name, value), value)
        if self.choices and value not in self.choices:
            raise self._refuse(raw, where, nearest(str(value), self.choices))
        if self.bounds is not None:
            low, high = self.bounds
            if not low <= typing.cast(float, value) <= high:
                raise self._refuse(raw, where)
        return value

    @property
    def wanted(self) -> str:
        """The allowed values, in words."""
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        wanted = " | ".join(self.choices) or words[self.kind]
        if self.bounds is not None:
            low, high = self.bounds
            wanted += f" from {as_typed(low)}"
            wanted += f" to {as_typed(high)}" if math.isfinite(high) else ""
        return wanted + (", or auto" if self.is_optional else "")

    def _typed(self, raw: object) -> Value:
        if isinstance(raw, str):
            return self._from_text(raw)
        if type(raw) is int and self.kind in (int, float):
            return None if abs(raw) > _MAX_INT else self.kind(raw)
        if type(raw) is not self.kind:
            return None
        if isinstance(raw, float) and not math.isfinite(raw):
            return None
        return typing.cast(Value, raw)

    def _from_text(self, text: str) -> Value:
        if self.kind is str:
            return text
        if self.kind is bool:
            word = text.strip().lower()
            return True if word in _TRUE else False if word in _FALSE else None
        try:
            return self._typed(int(text) if self.kind is int else float(text))
        except ValueError:
            return None

    def _refuse(self, raw: object, where: str, near: str = "") -> SettingsError:
        hint = f"Did you mean {near!r}?" if near else f"{self.name}: {self.doc}"
        return SettingsError(f"{where}: {shown(raw)} is not {self.wanted}", hint)


def as_typed(value: float) -> str:
    """A number as it can be typed, every digit of a whole one."""
    return f"{int(value)}" if value == int(value) else f"{value:g}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like `word`, or an empty string."""
    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=_ALIKE)
    return found[0] if found else ""
