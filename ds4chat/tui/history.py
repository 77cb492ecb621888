"""What a person sent before: kept over runs, found again by its beginning."""

from __future__ import annotations

import json
from pathlib import Path

from ds4chat.errors import SettingsError
from ds4chat.smallfile import read_bytes
from ds4chat.tui.files import append_private, write_private

FILE = "history.jsonl"
MAX_ENTRIES = 1_000
MAX_ENTRY = 32_768  # characters; longer ones are remembered for this run only
MAX_FILE_BYTES = 4 << 20
_MAX_LINES = 4 * MAX_ENTRIES  # looked at, from the end


class History:
    """Sent texts, oldest first, and a place in them.

    Args:
        path: Where they are kept, one JSON string a line; None: nowhere.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries = _load(path) if path is not None else []
        self._place = len(self._entries)
        self._draft = ""
        self._is_kept = path is not None  # the newest, over runs

    def add(self, text: str) -> bool:
        """Remember a text, and go back behind the newest; False: for this run only."""
        if not self._entries or self._entries[-1] != text:
            self._entries.append(text)
            self._is_kept = self._keep(text)
        self._place = len(self._entries)
        self._draft = ""
        return self._is_kept

    def _keep(self, text: str) -> bool:
        if self._path is None or len(text) > MAX_ENTRY:
            return False
        return append_private(self._path, json.dumps(text) + "\n")

    def older(self, typed: str) -> str | None:
        """The next older text; None if there is none.

        Args:
            typed: What stands in the prompt. Where the walk begins it is the draft, and only
                texts that begin with it are shown, unless none does.
        """
        if self._place == len(self._entries):
            self._draft = typed
        return self._go(range(self._place - 1, -1, -1))

    def newer(self) -> str | None:
        """The next newer text, behind the newest the draft; None if that is shown."""
        if self._place == len(self._entries):
            return None
        found = self._go(range(self._place + 1, len(self._entries)))
        if found is None:
            self._place = len(self._entries)
            return self._draft
        return found

    def _go(self, places: range) -> str | None:
        begins = any(entry.startswith(self._draft) for entry in self._entries)
        for place in places:
            if not begins or self._entries[place].startswith(self._draft):
                self._place = place
                return self._entries[place]
        return None


def _load(path: Path) -> list[str]:
    """The texts of a file; lines that are damaged are left out, an overlong file is cut."""
    try:
        data = read_bytes(path, MAX_FILE_BYTES)
    except (OSError, SettingsError):
        return []
    lines = data.rsplit(b"\n", _MAX_LINES)[-_MAX_LINES:]
    found = (_entry(line.decode("utf-8", "replace")) for line in lines)
    entries = [entry for entry in found if entry is not None]
    if len(entries) > 2 * MAX_ENTRIES:
        kept = "".join(json.dumps(entry) + "\n" for entry in entries[-MAX_ENTRIES:])
        write_private(path, kept)
    return entries[-MAX_ENTRIES:]


def _entry(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, str) else None
