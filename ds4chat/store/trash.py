"""Deleted sessions, which can be brought back until they are purged."""

from __future__ import annotations

import os
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.store.files import FileOps, is_real_dir
from ds4chat.store.lock import FILE_NAME as LOCK_NAME

FOLDER = ".trash"
NEW_PREFIX = ".new-"


class Trash:
    """The folder `.trash`: entries are called `<number>~<name>`, the newest has the highest."""

    def __init__(self, root: Path, ops: FileOps) -> None:
        self._root = root
        self._place = root / FOLDER
        self._ops = ops

    def names(self) -> list[str]:
        """Names of the deleted sessions, the newest first; a name may occur twice."""
        return [name for _, name in reversed(self._entries())]

    def put(self, folder: Path) -> None:
        """Move a session here. Raises OSError."""
        if not is_real_dir(self._place):
            self._ops.mkdir(self._place)
        entries = self._entries()
        number = entries[-1][0] + 1 if entries else 1
        target = self._place / f"{number:06d}~{folder.name}"
        self._ops.rename(folder, target)
        os.utime(target)  # when it was deleted, for `purge`
        (target / LOCK_NAME).unlink(missing_ok=True)
        self._ops.sync_dir(self._root)

    def take(self, name: str, target: Path) -> None:
        """Move the newest entry of that name to `target`.

        Raises:
            SessionFileError: there is none.
            OSError: it cannot be moved.
        """
        numbers = [number for number, found in self._entries() if found == name]
        if not numbers:
            held = ", ".join(repr(found) for found in self.names()[:8]) or "nothing"
            raise SessionFileError(
                f"there is no deleted session {name!r}", f"The trash holds {held}."
            )
        self._ops.rename(self._place / f"{max(numbers):06d}~{name}", target)
        self._ops.sync_dir(self._root)

    def purge(self, older_than_s: float, now_s: float) -> None:
        """Remove entries, and sessions that were never finished, older than that.

        Raises:
            OSError: one cannot be removed.
        """
        entries = [self._place / f"{number:06d}~{name}" for number, name in self._entries()]
        unfinished = [path for path in self._root.glob(f"{NEW_PREFIX}*") if is_real_dir(path)]
        for path in (*entries, *unfinished):
            if now_s - path.lstat().st_mtime > older_than_s:
                self._ops.remove_tree(path)

    def _entries(self) -> list[tuple[int, str]]:
        if not is_real_dir(self._place):
            return []
        found = []
        for path in self._place.iterdir():
            number, mark, name = path.name.partition("~")
            if mark and len(number) == 6 and number.isdecimal() and is_real_dir(path):
                found.append((int(number), name))
        return sorted(found)
