"""The settings of a start, and what a person changed of them since."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from ds4chat.settings import Origin, Settings
from ds4chat.settings_row import Row, Value
from ds4chat.tui import settings_file

# Two names of one thing: giving both is refused, so that one gives way to the other.
_ALTERNATIVES = {"system": "system_file", "system_file": "system"}


@dataclass(slots=True, kw_only=True)
class SettingsBook:
    """Values with their sources. `for_next_start` names those that this run does not take up.

    `config_file` None: nothing is kept.
    """

    start: Settings
    config_file: Path | None = None
    for_next_start: set[str] = field(default_factory=set)

    def keep(self, row: Row, value: Value) -> str:
        """Write a value into the settings file; returns what more there is to say.

        Raises:
            SettingsError: it could not be written.
        """
        if self.config_file is None:
            return ""
        was_from = self.start.origin(row.name)
        other = _ALTERNATIVES.get(row.name, "")
        if value and other and self.start.origin(other) is Origin.FILE:
            self._write(self.config_file, other, "")
        self._write(self.config_file, row.name, value)
        if was_from is Origin.ENVIRONMENT:
            return f"; {row.variable} overrides the settings file at the next start"
        return ""

    def _write(self, path: Path, name: str, value: Value) -> None:
        settings_file.keep(path, name, value)
        origins = {**self.start.origins, name: Origin.FILE}
        changes: dict[str, object] = {name: value, "origins": origins}
        self.start = replace(self.start, **changes)  # type: ignore[arg-type]
