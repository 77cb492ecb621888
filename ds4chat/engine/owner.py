"""Who holds a model file open on this machine: two copies of its weights rarely fit.

Each process that opens a model keeps a small file in the person's own folder, named after the
model file's device and inode, and claims it with `flock`. The claim ends with the process, so
what a killed process left behind is recognised, and removed with the next claim. Nothing here
forbids anything: the command line asks. Where a file system has no claims, nobody is found to
hold anything.

This module imports no tensors: it is asked before the engine's process starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ds4chat import paths, settings
from ds4chat.errors import Ds4Error

_MAX_BYTES = 4096
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a model; `since` in seconds since 1970, 0 if it did not say."""

    pid: int
    since: float
    path: Path  # of its claim

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        clock = time.strftime("%H:%M", time.localtime(self.since))
        return f"process {self.pid} (since {clock})"


class Claim:
    """This process's claim on a model, held until `release`."""

    def __init__(self, path: Path | None, fd: int) -> None:
        self._path = path
        self._fd = fd
        _held.add(self)

    def release(self) -> None:
        """End the claim. Safe to call twice."""
        _held.discard(self)
        if self._fd < 0:
            return
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = -1


_held: set[Claim] = set()


def release_all() -> None:
    """End every claim of this process, which is about to leave without closing its engine."""
    for claim in list(_held):
        claim.release()


def folder() -> Path:
    """Where claims lie. Raises Ds4Error: it cannot be created."""
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    return paths.private_dir(dirs.log_dir() / "holding")


def claim(model: Path) -> Claim:
    """Say that this process holds `model` open; without a place to say so, say nothing."""
    try:
        _sweep(folder())
        return _claim(model, folder())
    except (OSError, Ds4Error):
        return Claim(None, -1)


def holders(model: Path) -> list[Holder]:
    """The processes that hold `model` open, this one's own claims too, oldest first."""
    found = []
    for path in _claims_on(model):
        with _opened(path) as fd:
            if fd is None:
                continue
            if _try(fd, fcntl.LOCK_EX):
                path.unlink(missing_ok=True)  # its process has ended
            else:
                found.append(_read(fd, path))
    return sorted(found, key=lambda holder: holder.since)


def wait(holder: Holder) -> None:
    """Wait until a process no longer holds its model; signals end it as usual."""
    with _opened(holder.path) as fd:
        if fd is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_SH)


def _sweep(where: Path) -> None:
    """Remove what dead processes left, whichever model they held."""
    for path in where.iterdir():
        with _opened(path) as fd:
            if fd is not None and _try(fd, fcntl.LOCK_EX):
                path.unlink(missing_ok=True)


def _claim(model: Path, where: Path) -> Claim:
    status = model.stat()
    while True:
        name = f"{_key(status)}.{os.getpid()}-{next(_numbers)}"
        fd = os.open(where / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # waits for one who tries whether we are dead
        except OSError:  # the file system has no claims
            os.close(fd)
            raise
        words = {"pid": os.getpid(), "since": time.time()}
        os.write(fd, json.dumps(words).encode())
        if (where / name).exists():  # nobody took it for a dead process's meanwhile
            return Claim(where / name, fd)
        os.close(fd)


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev:x}-{status.st_ino:x}"


def _claims_on(model: Path) -> list[Path]:
    try:
        return sorted(folder().glob(f"{_key(model.stat())}.*"))
    except (OSError, Ds4Error):
        return []


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(fd: int, path: Path) -> Holder:
    try:
        words = json.loads(os.pread(fd, _MAX_BYTES, 0))
        pid, since = int(words["pid"]), float(words["since"])
        time.localtime(since)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pid, since = 0, 0.0
    return Holder(pid=pid, since=since, path=path)
