"""The files of snapshots: written so that a kill at any moment leaves the old or the new one.

Order of a save: data file under a temporary name, fsync, rename, fsync of the folder; then the
manifest in the same way. The rename of the manifest is the moment from which the snapshot
exists. Data files are named by their hash and never change, so a save can replace a manifest
without touching what other snapshots use.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ds4chat.engine.snapshot_chain import (
    REBUILD_HINT,
    Link,
    Manifest,
    check_name,
    data_file,
    decode_manifest,
    encode_manifest,
    is_data_file,
    is_name,
)
from ds4chat.errors import SnapshotError
from ds4chat.formats.show import shown_path

fcntl: Any
try:
    import fcntl  # not on Windows
except ImportError:
    fcntl = None

_PIECE = 4 << 20  # bytes hashed and written at a time
_MAX_MANIFEST = 1 << 20
_SUFFIX, _TEMPORARY = ".json", ".tmp"
_LEFT_BEHIND = (".data.tmp", ".json.tmp")
_REASONS = {
    errno.ENOSPC: ("the disk is full", "Free some space; the chat goes on without it."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space; the chat goes on."),
    errno.EACCES: ("permission denied", "Make the folder yours again; the chat goes on."),
    errno.EROFS: ("the disk is read-only", "The chat goes on without snapshots."),
    errno.ENOENT: ("the folder or a file in it is gone", "The chat goes on without it."),
    errno.ELOOP: ("a link where a file should be", "Remove the link."),
}


class Files(Protocol):
    """Every change that a save makes to the disk, one method for each kind of step."""

    def make_folder(self, path: Path) -> None:
        """Make a private folder unless it is there; its parent must be."""

    def create(self, path: Path) -> int:
        """Open a private, empty file for writing."""

    def write(self, handle: int, piece: memoryview) -> None:
        """Write all of `piece`."""

    def sync(self, handle: int) -> None:
        """Bring the file's bytes to the disk."""

    def close(self, handle: int) -> None:
        """Close the file."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file its final name, in place of any other."""

    def sync_folder(self, path: Path) -> None:
        """Bring the folder's names to the disk."""

    def remove(self, path: Path) -> None:
        """Remove a file."""


class DiskFiles:
    """The real disk."""

    def make_folder(self, path: Path) -> None:
        """See `Files`."""
        path.mkdir(mode=0o700, exist_ok=True)

    def create(self, path: Path) -> int:
        """See `Files`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)

    def write(self, handle: int, piece: memoryview) -> None:
        """See `Files`."""
        while piece:
            piece = piece[os.write(handle, piece) :]

    def sync(self, handle: int) -> None:
        """See `Files`."""
        full = getattr(fcntl, "F_FULLFSYNC", None)
        if full is None:
            os.fsync(handle)
        else:  # macOS: fsync alone leaves the bytes in the drive's cache
            fcntl.fcntl(handle, full)

    def close(self, handle: int) -> None:
        """See `Files`."""
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        """See `Files`."""
        old.replace(new)

    def sync_folder(self, path: Path) -> None:
        """See `Files`."""
        if not hasattr(os, "O_DIRECTORY"):
            return  # Windows cannot open folders
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        """See `Files`."""
        path.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a folder holds: readable snapshots by name, and why others are not."""

    manifests: dict[str, Manifest]
    problems: dict[str, SnapshotError]

    @property
    def in_use(self) -> set[str]:
        """Data files that a readable snapshot needs."""
        return {link.file for m in self.manifests.values() for link in m.links}


def failure(folder: Path, error: OSError, doing: str) -> SnapshotError:
    """An operating system's error in words."""
    what, hint = _REASONS.get(error.errno or 0, (error.strerror or str(error), REBUILD_HINT))
    return SnapshotError(f"{shown_path(folder)}: the snapshot cannot be {doing}: {what}", hint)


def write_snapshot(
    files: Files,
    folder: Path,
    name: str,
    chunks: Iterable[bytes | memoryview],
    finish: Callable[[Link], Manifest],
    n: int,
) -> Manifest:
    """Write a data file and the manifest that `finish` makes of it; all or nothing.

    Raises:
        SnapshotError: the disk refuses; nothing that was there before has changed.
    """
    check_name(name)
    try:
        files.make_folder(folder)
        link = _write_data(files, folder, name, chunks, n)
        manifest = finish(link)
        for other in manifest.links[:-1]:
            if not (folder / other.file).is_file():
                raise FileNotFoundError(errno.ENOENT, "gone", other.file)
        raw = encode_manifest(manifest)
        _write_file(files, folder / f"{name}{_SUFFIX}", [raw], lambda _: name + _SUFFIX)
    except OSError as error:
        raise failure(folder, error, "written") from error
    return manifest


def _write_data(
    files: Files, folder: Path, name: str, chunks: Iterable[bytes | memoryview], n: int
) -> Link:
    sha256, n_bytes = _write_file(files, folder / f"{name}.data", chunks, data_file)
    return Link(file=data_file(sha256), n_bytes=n_bytes, sha256=sha256, n=n)


def _write_file(
    files: Files,
    path: Path,
    chunks: Iterable[bytes | memoryview],
    final_name: Callable[[str], str],
) -> tuple[str, int]:
    """Write, sync and rename one file; `final_name` gets its SHA-256. Returns hash and size."""
    temporary = path.with_name(path.name + _TEMPORARY)
    digest, n_bytes = hashlib.sha256(), 0
    handle = files.create(temporary)
    try:
        try:
            for piece in _pieces(chunks):
                digest.update(piece)
                n_bytes += len(piece)
                files.write(handle, piece)
            files.sync(handle)
        finally:
            files.close(handle)
        sha256 = digest.hexdigest()
        files.rename(temporary, path.with_name(final_name(sha256)))
    except OSError:
        with suppress(OSError):
            files.remove(temporary)
        raise
    files.sync_folder(path.parent)
    return sha256, n_bytes


def _pieces(chunks: Iterable[bytes | memoryview]) -> Iterable[memoryview]:
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), _PIECE):
            yield view[start : start + _PIECE]


def read_manifest(folder: Path, name: str) -> Manifest:
    """Read and check `NAME.json`.

    Raises:
        SnapshotError: not there, not readable, damaged, or of a later version.
    """
    path = folder / f"{check_name(name)}{_SUFFIX}"
    return decode_manifest(_read(path, _MAX_MANIFEST), str(path))


def read_link(folder: Path, link: Link) -> bytes:
    """Read a data file and compare size and SHA-256.

    Raises:
        SnapshotError: not there, not readable, or another content.
    """
    path = folder / link.file
    raw = _read(path, link.n_bytes)
    found = hashlib.sha256(raw).hexdigest()
    if len(raw) != link.n_bytes or found != link.sha256:
        raise SnapshotError(
            f"{shown_path(path)}: the snapshot is damaged: its bytes hash to {found[:12]}; "
            f"{link.n_bytes:,} bytes with {link.sha256[:12]} wanted",
            REBUILD_HINT,
        )
    return raw


def _read(path: Path, limit: int) -> bytes:
    """All bytes of a regular file, or nothing of one above `limit`; no link is followed."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):  # of a folder no file object can be made
                raise OSError(errno.EINVAL, "not a regular file")
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(status.st_size) if status.st_size <= limit else b""
        finally:
            os.close(handle)
    except OSError as error:
        raise failure(path, error, "read") from error


def scan(folder: Path) -> Scan:
    """Read every manifest of a folder; a folder that is not there holds none.

    Raises:
        SnapshotError: the folder cannot be read.
    """
    manifests: dict[str, Manifest] = {}
    problems: dict[str, SnapshotError] = {}
    for path in _paths(folder):
        if path.suffix == _SUFFIX and is_name(path.stem):
            try:
                manifests[path.stem] = read_manifest(folder, path.stem)
            except SnapshotError as error:
                problems[path.stem] = error
    return Scan(manifests=manifests, problems=problems)


def clean(folder: Path, files: Files) -> tuple[str, ...]:
    """Remove what a killed save left: temporary files, and data that no snapshot lists.

    Data stays while a manifest is unreadable: a later version may have written it. Only for a
    folder that nobody is writing to.

    Returns:
        The names of what was removed.

    Raises:
        SnapshotError: the disk refuses.
    """
    found = scan(folder)
    paths = _paths(folder)
    left = [path for path in paths if path.name.endswith(_LEFT_BEHIND)]
    if not found.problems:
        left += [p for p in paths if is_data_file(p.name) and p.name not in found.in_use]
    return _remove(folder, left, files)


def remove(folder: Path, names: Sequence[str], files: Files) -> tuple[str, ...]:
    """Remove snapshots, and the data that only they used.

    Raises:
        SnapshotError: the disk refuses.
    """
    paths = [folder / f"{check_name(name)}{_SUFFIX}" for name in names]
    gone = _remove(folder, [path for path in paths if path.exists()], files)
    return gone + clean(folder, files)


def _remove(folder: Path, paths: Sequence[Path], files: Files) -> tuple[str, ...]:
    try:
        for path in paths:
            files.remove(path)
        if paths:
            files.sync_folder(folder)
    except OSError as error:
        raise failure(folder, error, "removed") from error
    return tuple(path.name for path in paths)


def _paths(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise failure(folder, error, "read") from error
