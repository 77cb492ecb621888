"""Appending to a transcript so that a failure at any moment leaves whole lines.

Lines wait in memory until they are written, and those of a turn until the disk holds them:
after a failure the file is cut back to what is known to be good, and the next append (or
`retry`) writes all that waits. A failure is raised once; the chat goes on meanwhile.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.store import lock, transcripts
from ds4chat.store.files import (
    FILE_MODE,
    FileOps,
    is_real_dir,
    read_all,
    trouble,
    write_all,
    write_new,
)
from ds4chat.store.lock import Owner, SessionLock


class TakenOverError(SessionFileError):
    """Another program writes to the session now; this one may only read."""


class Journal:
    """A transcript that this process may append to. Its methods may be called by any thread.

    Args:
        folder: the session's folder.
        fd: its transcript, open for reading and writing; the journal closes it.
        n_bytes: its length; what lies beyond is cut off.
        held: the claim on the session; the journal releases it.
        ops: how files are changed.
        head: what must stand before the next line (a line feed that was lost).
    """

    def __init__(
        self,
        folder: Path,
        fd: int,
        n_bytes: int,
        held: SessionLock,
        ops: FileOps,
        *,
        head: bytes = b"",
    ) -> None:
        self.folder = folder
        self._fd = fd
        self._lock = held
        self._ops = ops
        self._n_written = n_bytes
        self._n_synced = n_bytes
        self._waiting: list[bytes] = [head] if head else []  # not in the file
        self._unsynced: list[bytes] = []  # in the file, perhaps not on the disk
        self._is_failing = False
        self._is_over = False
        self._mutex = threading.RLock()

    @property
    def n_unwritten(self) -> int:
        """Lines that are only in memory."""
        return len(self._waiting)

    @property
    def path(self) -> Path:
        """The transcript."""
        return self.folder / transcripts.FILE_NAME

    @property
    def is_over(self) -> bool:
        """Whether another program has taken the session over."""
        return self._is_over

    @property
    def is_failing(self) -> bool:
        """Whether a write failed and the disk does not hold everything yet."""
        return self._is_failing

    def append(self, line: bytes, *, sync: bool) -> None:
        """Write a line, and with `sync` have the disk hold it and all before it.

        Raises:
            SessionFileError: it could not be written; it waits. Raised for the first failure
                only, until the disk holds everything again.
        """
        with self._mutex:
            self._waiting.append(line)
            if not self._is_over:
                self._attempt(sync=sync)

    def retry(self) -> bool:
        """Try to write what waits; whether nothing waits any more. Raises as `append` does."""
        with self._mutex:
            if not self._is_over and (self._waiting or self._unsynced):
                self._attempt(sync=True)
            return not self._waiting

    def content(self) -> bytes:
        """The whole transcript, what waits included; also when its folder is gone."""
        with self._mutex:
            return read_all(self._fd)[: self._n_written] + b"".join(self._waiting)

    def moved(self, folder: Path) -> None:
        """The session's folder has another name now."""
        with self._mutex:
            self.folder = folder
            self._lock.moved(folder)

    def close(self) -> None:
        """Write what waits and end the claim on the session. Safe to call twice.

        Raises:
            SessionFileError: something could not be written and is lost now.
        """
        with self._mutex:
            if self._fd < 0:
                return
            try:
                if not self._is_over and (self._waiting or self._unsynced):
                    self._is_failing = False
                    self._attempt(sync=True)
            finally:
                os.close(self._fd)
                self._fd = -1
                self._lock.release()

    def _attempt(self, *, sync: bool) -> None:
        try:
            self._find_again()
            lock.patiently(self._fd, lambda: self._write(sync=sync))
        except TakenOverError:
            self._is_over = True
            raise
        except OSError as error:
            self._roll_back()
            if not self._is_failing:
                self._is_failing = True
                failure = trouble("the session cannot be saved", self.path, error)
                kept = "The chat goes on; saving is tried again with each turn."
                failure.hint = f"{failure.hint} {kept}".strip()
                raise failure from error
        else:
            self._is_failing = self._is_failing and not sync

    def _write(self, *, sync: bool) -> None:
        if not self._lock.is_mine():
            raise TakenOverError(
                f"another window has taken the session {self.folder.name!r} over",
                "Nothing that was saved is lost.",
            )
        if os.fstat(self._fd).st_size > self._n_written:
            self._ops.truncate(self._fd, self._n_written)
        if self._waiting:
            data = b"".join(self._waiting)
            write_all(self._ops, self._fd, data)
            self._n_written += len(data)
            self._unsynced += self._waiting
            self._waiting = []
        if sync:
            self._ops.sync(self._fd)
            self._n_synced = self._n_written
            self._unsynced = []

    def _roll_back(self) -> None:
        """After a failure nothing since the last sync is trusted: it waits again."""
        self._waiting = self._unsynced + self._waiting
        self._unsynced = []
        self._n_written = self._n_synced
        try:
            if os.fstat(self._fd).st_size > self._n_written and self._lock.is_mine():
                self._ops.truncate(self._fd, self._n_written)
        except OSError:
            pass  # cut before the next write

    def _find_again(self) -> None:
        """Make sure that the path still names the open file; make it again if it is gone."""
        try:
            there = self.path.lstat()
        except FileNotFoundError:
            self._make_again()
            return
        here = os.fstat(self._fd)
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            raise OSError(errno.ESTALE, "another file took its place", str(self.path))
        if here.st_size < self._n_synced:
            raise OSError(errno.EIO, "it was cut by another program", str(self.path))

    def _make_again(self) -> None:
        """The folder or the transcript was deleted: write it again from the open file."""
        if not is_real_dir(self.folder.parent):
            raise FileNotFoundError(errno.ENOENT, "the folder is gone", str(self.folder))
        if not is_real_dir(self.folder):
            self._ops.mkdir(self.folder)
        claimed: SessionLock | Owner = self._lock
        if not self._lock.is_mine():
            claimed = lock.claim(self.folder, self._lock.owner, self._ops)
        if isinstance(claimed, Owner):
            raise OSError(errno.EBUSY, f"{claimed} made it again", str(self.folder))
        data = read_all(self._fd)[: self._n_written]
        fresh = self.folder / f".{transcripts.FILE_NAME}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        write_new(self._ops, fresh, data)
        self._ops.rename(fresh, self.path)
        fd = open_for_append(self._ops, self.path)
        os.close(self._fd)
        if claimed is not self._lock:
            self._lock.release()
        self._fd, self._lock = fd, claimed
        self._ops.sync_dir(self.folder)


def open_for_append(ops: FileOps, path: Path) -> int:
    """Open a transcript that is there, and make it private."""
    fd = ops.open(path, os.O_RDWR | os.O_APPEND)
    try:
        os.fchmod(fd, FILE_MODE)
    except OSError:
        os.close(fd)
        raise
    return fd
