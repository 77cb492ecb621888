"""A copy of a conversation in another place, for when its own disk takes no more.

The place is a fresh private folder that is a folder of sessions like any other: the chat goes
on from it with `-r NAME --sessions FOLDER`. KV snapshots are not copied: text is read again.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.store.library import Library
from ds4chat.store.session import Session

_SUFFIX = "-rescued"
_MAX_STEM, _MAX_STEM_BYTES = 60, 180

Fill = Callable[[Library, str], Session]
"""Makes the copy: a session of that name in that library, not closed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """Where a copy lies: a folder of sessions, and the session's name there."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """The session's own folder."""
        return self.root / self.name


def places() -> Iterator[Path]:
    """Folders that may take a copy, the system's temporary folder first."""
    with contextlib.suppress(OSError):
        yield Path(tempfile.gettempdir())
    yield Path("/var/tmp")
    with contextlib.suppress(OSError):
        yield Path.cwd()


def write(name: str, fill: Fill, wheres: Iterator[Path] | None = None) -> Rescue | None:
    """Write a copy into the first place that takes it whole; None: none does.

    Args:
        name: the session's name; the copy's is made from it.
        fill: makes the copy.
        wheres: the places; None: the usual ones.
    """
    for where in places() if wheres is None else wheres:
        try:
            root = Path(tempfile.mkdtemp(prefix="ds4chat-rescue-", dir=where))
        except OSError:
            continue
        found = Rescue(root=root, name=_name(name))
        try:
            fill(Library(root), found.name).close()
        except SessionFileError:
            remove(found)
        else:
            return found
    return None


def _name(name: str) -> str:
    stem = name[:_MAX_STEM].encode()[:_MAX_STEM_BYTES].decode("utf-8", "ignore")
    return stem.rstrip(". ") + _SUFFIX


def remove(rescue: Rescue) -> None:
    """Delete a copy and its place."""
    shutil.rmtree(rescue.root, ignore_errors=True)
