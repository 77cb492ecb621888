"""Who may write to a session: one program at a time, named in the file `lock`.

The claim is an advisory `flock` on that file, which ends with the process that holds it, so a
dead owner's file is simply taken over. Another window can take a session over explicitly: a
new lock file is put in the old one's place, and the old owner finds at its next write that the
file there is no longer its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ds4chat.store.clean import clean_line
from ds4chat.store.files import FileOps, write_all

FILE_NAME = "lock"
_MAX_BYTES = 4096
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_TRIES = 8
_PATIENT_TRIES = 200
_TRY_EVERY_S = 0.01
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d.]+Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that writes to a session, and since when (UTC, ISO 8601)."""

    pid: int
    host: str
    started: str

    @classmethod
    def me(cls, now: str) -> Owner:
        """This process."""
        return cls(pid=os.getpid(), host=platform.node(), started=now)

    def __str__(self) -> str:
        since = _TIME.sub(r"\1 \2 UTC", self.started)
        return f"process {self.pid} on {self.host} since {since}"


NOBODY = Owner(pid=0, host="an unknown machine", started="an unknown time")


class SessionLock:
    """A claim on a session's folder, held until `release`."""

    def __init__(self, folder: Path, fd: int, owner: Owner, ops: FileOps) -> None:
        self.path = folder / FILE_NAME
        self.owner = owner
        self._fd = fd
        self._ops = ops

    def is_mine(self) -> bool:
        """Whether nobody has taken the session over, and its folder is still there."""
        try:
            there = self.path.lstat()
        except OSError:
            return False
        here = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def moved(self, folder: Path) -> None:
        """The folder has another name now."""
        self.path = folder / FILE_NAME

    def release(self) -> None:
        """End the claim; the file goes too, unless it is another's."""
        if self._fd < 0:
            return
        try:
            if self.is_mine():
                self._ops.unlink(self.path)
        except OSError:
            pass  # a file that nobody holds is taken over by whoever comes next
        os.close(self._fd)
        self._fd = -1


def claim(folder: Path, owner: Owner, ops: FileOps) -> SessionLock | Owner:
    """Claim the session in `folder`, or return who holds it.

    Raises:
        OSError: the lock file cannot be made.
    """
    path = folder / FILE_NAME
    for _ in range(_TRIES):
        fd = ops.open(path, os.O_RDWR | os.O_CREAT)
        try:
            other = _held_by(fd, owner)
            if other is not None and _is_gone(other):
                continue  # a dead owner's words: somebody only looks who holds it
            if other is None:
                lock = SessionLock(folder, fd, owner, ops)
                if not lock.is_mine():
                    continue  # it was replaced while we looked: look again
                with contextlib.suppress(OSError):  # words only: the claim holds without them
                    _write_owner(fd, owner, ops)
                fd = -1
                return lock
            return other
        finally:
            if fd >= 0:
                os.close(fd)
    return NOBODY


def take_over(folder: Path, owner: Owner, ops: FileOps) -> SessionLock:
    """Claim the session in `folder`, whoever holds it.

    Raises:
        OSError: the lock file cannot be replaced.
    """
    fresh = folder / f"{FILE_NAME}.{owner.pid}"
    fresh.unlink(missing_ok=True)
    fd = ops.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        _flock(fd)
        _write_owner(fd, owner, ops)
        ops.rename(fresh, folder / FILE_NAME)
    except BaseException:
        os.close(fd)
        raise
    return SessionLock(folder, fd, owner, ops)


def holder(folder: Path) -> Owner | None:
    """Who holds a session now, or None. Changes nothing but for the blink of a test claim."""
    try:
        fd = FileOps().open(folder / FILE_NAME, os.O_RDWR)
    except OSError:
        return None
    try:
        return _held_by(fd, None)
    finally:
        os.close(fd)


def briefly(fd: int, work: Callable[[], None]) -> None:
    """Do `work` while nobody else does such work on the same open file.

    Raises:
        BlockingIOError: another process is at it.
    """
    held = _flock(fd)
    try:
        work()
    finally:
        if held:
            fcntl.flock(fd, fcntl.LOCK_UN)


def patiently(fd: int, work: Callable[[], None]) -> None:
    """The same, waiting up to two seconds for the other one to finish.

    Raises:
        BlockingIOError: it took longer.
    """
    for _ in range(_PATIENT_TRIES - 1):
        try:
            return briefly(fd, work)
        except BlockingIOError:
            time.sleep(_TRY_EVERY_S)
    return briefly(fd, work)


def _flock(fd: int) -> bool:
    """Claim an open file without waiting; False where the file system has no such claims."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    return True


def _held_by(fd: int, me: Owner | None) -> Owner | None:
    """Who else holds an open lock file; None: nobody did, and it is claimed now."""
    try:
        if _flock(fd):
            return None
    except BlockingIOError:
        return _read_owner(fd) or NOBODY
    # No claims here (some network file systems): the file's words must do.
    other = _read_owner(fd)
    if other is None or (me is not None and (other.pid, other.host) == (me.pid, me.host)):
        return None
    return None if _is_gone(other) else other


def _is_gone(owner: Owner) -> bool:
    """Whether an owner was a process of this machine that has ended."""
    if owner.host != platform.node() or owner.pid < 1:
        return False
    try:
        os.kill(owner.pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False  # another user's
    return False


def _write_owner(fd: int, owner: Owner, ops: FileOps) -> None:
    ops.truncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    write_all(ops, fd, json.dumps(asdict(owner)).encode() + b"\n")


def _read_owner(fd: int) -> Owner | None:
    try:
        found = json.loads(os.pread(fd, _MAX_BYTES, 0))
        return Owner(
            pid=int(found["pid"]),
            host=clean_line(str(found["host"]), 80),
            started=clean_line(str(found["started"]), 40),
        )
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
