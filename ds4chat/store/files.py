"""The file operations of the store, in one place, so that a test can fail or kill each one.

Everything is made private to the user, and no symbolic link is followed below the folder of
sessions.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
from pathlib import Path

from ds4chat.errors import SessionFileError

DIR_MODE, FILE_MODE = 0o700, 0o600
_READ_CHUNK = 1 << 20

HINTS = {
    errno.ENOSPC: "The disk is full: free some space; `ds4chat sessions strip` drops KV files.",
    errno.EDQUOT: "Your disk quota is used up: free some space.",
    errno.EACCES: "Check the permissions of the folder.",
    errno.EPERM: "Check the permissions of the folder.",
    errno.EROFS: "The file system is read-only: choose another folder with --sessions DIR.",
    errno.ENOENT: "The folder is gone: was it moved or deleted?",
    errno.ELOOP: "It is a symbolic link; links are not followed here.",
}


def trouble(what: str, path: Path, error: OSError) -> SessionFileError:
    """An operating system's error as a person's message; the cause is kept."""
    words = os.strerror(error.errno) if error.errno else str(error)
    failure = SessionFileError(f"{path}: {what}: {words}", HINTS.get(error.errno or 0, ""))
    failure.__cause__ = error
    return failure


class FileOps:
    """The operations that change a disk; each does one thing."""

    def open(self, path: Path, flags: int) -> int:
        """Open a regular file, never a link, device or pipe; it is created private."""
        how = flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(path, how, FILE_MODE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return fd

    def write(self, fd: int, data: bytes) -> int:
        """Write some of `data`; returns how many bytes."""
        return os.write(fd, data)

    def truncate(self, fd: int, n_bytes: int) -> None:
        """Cut an open file."""
        os.ftruncate(fd, n_bytes)

    def sync(self, fd: int) -> None:
        """Have the disk hold an open file."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def sync_dir(self, path: Path) -> None:
        """Have the disk hold a folder's entries."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def mkdir(self, path: Path) -> None:
        """Make one private folder."""
        path.mkdir(mode=DIR_MODE)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or folder another name."""
        old.rename(new)

    def unlink(self, path: Path) -> None:
        """Remove a file or a link."""
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and all in it; links in it are removed, not followed."""
        shutil.rmtree(path)


def write_all(ops: FileOps, fd: int, data: bytes) -> None:
    """Write all of `data`, however many calls that takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[ops.write(fd, bytes(rest)) :]


def write_new(ops: FileOps, path: Path, data: bytes) -> None:
    """Make a file that must not exist, and have the disk hold it."""
    fd = ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(ops, fd, data)
        ops.sync(fd)
    finally:
        os.close(fd)


def read_all(fd: int) -> bytes:
    """The content of an open file, also of one that no folder names any more."""
    parts, offset = [], 0
    while part := os.pread(fd, _READ_CHUNK, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def is_real_dir(path: Path) -> bool:
    """Whether a folder, and no link to one, is there."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def tree_bytes(path: Path) -> int:
    """Bytes of all regular files in a folder, links not followed; 0 if there is none."""
    total = 0
    for folder, _, names in os.walk(path, followlinks=False):
        for name in names:
            try:
                found = os.lstat(f"{folder}/{name}")
            except OSError:
                continue
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total
