"""Folders, disk space and saved sessions, as `ds4chat doctor` sees them.

No name of a session is told: names are made of what was said.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ds4chat import paths
from ds4chat.cli.doctor_finding import Finding, fail, ok, warn
from ds4chat.errors import SessionFileError
from ds4chat.sizes import GB, size
from ds4chat.store import lock, transcripts
from ds4chat.store.library import Library

DISK, SESSIONS = "disk", "sessions"
LOW_BYTES, EMPTY_BYTES = GB, 64 * 10**6
MAX_READ, MAX_READ_BYTES = 500, 256 << 20

OnProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """A folder that the program writes to. `path` may not be there yet: `there` is what is.

    `trouble` says why a file cannot be made in it (empty: it can).
    """

    name: str
    path: Path
    there: Path
    mode: int
    is_mine: bool
    trouble: str
    free_bytes: int | None


def check_disk(dirs: paths.UserDirs, sessions: Path | None = None) -> list[Finding]:
    """Every folder that the program writes to."""
    folders = {
        "sessions": sessions or dirs.data_root / "sessions",
        "build": dirs.data_root / "build",
        "logs": dirs.state_root,
        "settings": dirs.config_root,
    }
    return [check_folder(look(name, path)) for name, path in folders.items()]


def look(name: str, path: Path) -> FolderFacts:
    """Find out about a folder; one that is not there is not made."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    found = there.stat()
    return FolderFacts(
        name=name,
        path=path,
        there=there,
        mode=stat.S_IMODE(found.st_mode),
        is_mine=found.st_uid == os.getuid(),
        trouble=_trouble(there),
        free_bytes=_free(there),
    )


def _trouble(folder: Path) -> str:
    if not folder.is_dir():
        return "not a folder"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def check_folder(facts: FolderFacts) -> Finding:
    """Judge one folder: can be written, has room, is private."""
    words = f"{facts.path}{'' if facts.there == facts.path else ' (not made yet)'}"
    if facts.trouble:
        fix = f"Make {facts.there} yours to write: chmod u+rwx, or another place by XDG_*_HOME"
        return fail(DISK, facts.name, f"{words}: cannot be written: {facts.trouble}", fix)
    room = "" if facts.free_bytes is None else f", {size(facts.free_bytes)} free"
    if facts.free_bytes is not None and facts.free_bytes < LOW_BYTES:
        judge = fail if facts.free_bytes < EMPTY_BYTES else warn
        fix = "Free some space; `ds4chat sessions strip NAME` drops KV snapshots."
        return judge(DISK, facts.name, words + room, fix)
    if facts.there == facts.path and facts.is_mine and facts.mode & 0o077:
        found = f"{words}: others can look into it (mode {facts.mode:o}){room}"
        return warn(DISK, facts.name, found, f"chmod 700 '{facts.path}'")
    return ok(DISK, facts.name, words + room)


def check_sessions(root: Path, progress: OnProgress) -> list[Finding]:
    """Read every session (the newest `MAX_READ` of them) and count what is damaged."""
    library = Library(root)
    try:
        found = library.summaries()
        deleted = len(library.trash.names())
    except SessionFileError as error:
        return [fail(SESSIONS, "folder", error.message, error.hint or "Check its permissions.")]
    kv = sum(summary.kv_bytes for summary in found)
    text = sum(summary.text_bytes for summary in found)
    words = f"{len(found)}, {size(text)} text, {size(kv)} KV snapshots"
    saved = ok(SESSIONS, "saved", words + (f"; {deleted} in the trash" if deleted else ""))
    n_bad, n_open, n_read = _count(library, progress)
    findings = [saved, _health(n_bad, n_read, len(found))]
    if n_open:
        findings.append(ok(SESSIONS, "open", f"{n_open} in a window now"))
    return findings


def _health(n_bad: int, n_read: int, n_all: int) -> Finding:
    rest = f" ({n_all - n_read} older ones not read)" if n_read < n_all else ""
    if not n_bad:
        return ok(SESSIONS, "health", f"{n_read} read, none damaged{rest}")
    return warn(
        SESSIONS, "health", f"{n_bad} of {n_read} damaged{rest}",
        "`ds4chat sessions list` names them; `ds4chat sessions show NAME` tells what is lost.\n"
        "What can be read is kept, and such a session can still be resumed.",
    )  # fmt: skip


def _count(library: Library, progress: OnProgress) -> tuple[int, int, int]:
    """Damaged, open, and read sessions."""
    n_bad = n_open = n_read = n_bytes = 0
    for summary in library.summaries()[:MAX_READ]:
        n_bytes += summary.text_bytes
        if n_bytes > MAX_READ_BYTES:
            break
        n_read += 1
        progress(f"reading session {n_read}")
        n_open += lock.holder(summary.path) is not None
        try:
            reading = transcripts.read(summary.path / transcripts.FILE_NAME)
        except SessionFileError:
            n_bad += 1
        else:  # a last line that a kill cut off is no damage: it is read without
            n_bad += bool(reading.problems)
    return n_bad, n_open, n_read


def check_crashes(folder: Path) -> list[Finding]:
    """Reports of defects that lie in the log folder."""
    found = sorted(path.name for path in folder.glob("crash-*.txt"))
    if not found:
        return []
    words = f"{len(found)} of defects, the last one {found[-1]}"
    return [
        warn(
            DISK, "crash reports", words,
            "Attach the last one to a report of the defect, then delete them.",
        )
    ]  # fmt: skip
