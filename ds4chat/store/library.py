"""The folder of sessions: making, opening, listing, renaming, deleting them.

A session is a folder of that name; whatever begins with a dot is the store's own (`.trash`,
sessions in the making). No name can lead out of the folder, and no link in it is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ds4chat.errors import Ds4Error, SessionFileError
from ds4chat.paths import private_dir
from ds4chat.store import codec, files, journal, lock, transcripts
from ds4chat.store.files import FileOps, is_real_dir, trouble
from ds4chat.store.journal import Journal
from ds4chat.store.lock import Owner, SessionLock
from ds4chat.store.names import check_name, nearest, safe_name
from ds4chat.store.records import Entry, Header, Renamed
from ds4chat.store.search import Hit, search
from ds4chat.store.session import Clock, Session, utc_now
from ds4chat.store.summary import Summary, summarize
from ds4chat.store.trash import Trash

T = TypeVar("T")


def _random_id() -> str:
    return uuid.uuid4().hex


class Library:
    """All sessions of one folder.

    Args:
        root: the folder; it is made, private to the user, when something is written.
        ops: how files are changed.
        clock: the time as text.
        build: this program's version, for the header of new sessions.
        new_id: makes the id of a new session.
    """

    def __init__(
        self,
        root: Path,
        *,
        ops: FileOps | None = None,
        clock: Clock = utc_now,
        build: str = "",
        new_id: Callable[[], str] = _random_id,
    ) -> None:
        self.root = root
        self._new_id = new_id
        self._ops = ops or FileOps()
        self._clock = clock
        self._build = build
        self.trash = Trash(root, self._ops)

    # Looking.

    def names(self) -> list[str]:
        """Names of all sessions, sorted.

        Raises:
            SessionFileError: the folder cannot be read.
        """
        try:
            entries = list(os.scandir(self.root))
        except OSError as error:
            is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
            if is_absent and not os.path.lexists(self.root):
                return []
            if isinstance(error, FileNotFoundError) and self.root.is_dir():
                return self.names()  # another window made it in this instant
            raise trouble("cannot be listed", self.root, error) from error
        found = (e.name for e in entries if e.is_dir(follow_symlinks=False))
        return sorted(name for name in found if name[0] not in ".-~")

    def summaries(self) -> list[Summary]:
        """All sessions, the one used last first."""
        found = [summarize(self.root / name, self._ops) for name in self.names()]
        return sorted(found, key=lambda summary: (-summary.changed_s, summary.name))

    def latest(self) -> str | None:
        """The name of the session used last."""
        return next((s.name for s in self.summaries() if not s.trouble), None)

    def path(self, name: str) -> Path:
        """The folder of a session that is there.

        Raises:
            SessionFileError: the name cannot be one, or there is no such session.
        """
        wanted = check_name(name)
        folder = self.root / wanted
        if is_real_dir(folder):
            return folder
        if folder.is_symlink():
            raise SessionFileError(
                f"{folder}: a symbolic link, not a session", "Links are not followed here."
            )
        known = self.names()
        for other in known:  # some file systems keep names decomposed
            if unicodedata.normalize("NFC", other) == wanted:
                return self.root / other
        near = nearest(wanted, known)
        hint = f"Did you mean {near!r}?" if near else "`ds4chat sessions list` shows them."
        raise SessionFileError(f"there is no session {wanted!r} in {self.root}", hint)

    def read(self, name: str) -> Session:
        """A session to look at only; nothing is written."""
        folder = self.path(name)
        reading = transcripts.read(folder / transcripts.FILE_NAME, self._ops)
        return Session(folder, reading, owner=lock.holder(folder), ops=self._ops)

    def search(self, text: str) -> Iterator[tuple[str, Hit]]:
        """Where a text was said, sessions used last first; unreadable ones are passed over."""
        for summary in self.summaries():
            with contextlib.suppress(SessionFileError):
                tree = transcripts.read(summary.path / transcripts.FILE_NAME, self._ops).tree
                for hit in search(tree, text):
                    yield summary.name, hit

    # Writing.

    def create(self, name: str = "", *, about: str = "") -> Session:
        """Begin a session.

        Args:
            name: a person's name for it; empty: one is made from the time and `about`.
            about: the first message.

        Raises:
            SessionFileError: the name is taken or cannot be one, or the disk refuses.
        """
        header = Header(id=self._new_id(), build=self._build)
        data = codec.encode(Entry(n=1, at=self._clock(), record=header))
        while not name:
            try:
                return self._make(self._free_name(about), data, is_free=True)
            except SessionFileError as error:
                if not _is_taken(error):
                    raise  # else another window was quicker: the next free name
        return self._make(check_name(name), data)

    def copy(self, session: Session, name: str) -> Session:
        """The text of a session (also one whose folder is gone) as a session of its own."""
        return self._make(check_name(name), session.content())

    def open(self, name: str, *, takeover: bool = False) -> Session:
        """Go on with a session; read-only if another window has it (its `owner` says who).

        Raises:
            SessionFileError: it is not there, cannot be read, or is of a newer format.
        """
        folder = self.path(name)
        path = folder / transcripts.FILE_NAME
        transcripts.check_version(path, self._ops)
        return self._guarded(path, "cannot be opened", lambda: self._open(folder, takeover))

    def _open(self, folder: Path, takeover: bool) -> Session:
        path = folder / transcripts.FILE_NAME
        fd = journal.open_for_append(self._ops, path)
        held: SessionLock | Owner | None = None
        try:
            held = self._claim(folder, fd, takeover)
            reading = transcripts.read(path, self._ops)
            if isinstance(held, Owner):
                os.close(fd)
                return Session(folder, reading, owner=held, ops=self._ops)
        except BaseException:
            os.close(fd)
            if isinstance(held, SessionLock):
                held.release()
            raise
        head = b"\n" if reading.is_unended else b""
        book = Journal(folder, fd, reading.good_bytes, held, self._ops, head=head)
        folder.chmod(files.DIR_MODE)
        return Session(folder, reading, journal=book, ops=self._ops, clock=self._clock)

    def _claim(self, folder: Path, fd: int, takeover: bool) -> SessionLock | Owner:
        me = Owner.me(self._clock())
        held = lock.claim(folder, me, self._ops)
        if isinstance(held, SessionLock) or not takeover:
            return held
        taken: list[SessionLock] = []
        with contextlib.suppress(BlockingIOError):
            lock.patiently(fd, lambda: taken.append(lock.take_over(folder, me, self._ops)))
        return taken[0] if taken else held

    def rename(self, name: str, new: str, session: Session | None = None) -> str:
        """Give a session another name; returns it.

        Args:
            name: the old name.
            new: the new one.
            session: the session, if this process has it open.

        Raises:
            SessionFileError: a name is unusable or taken, or another window has the session.
        """
        wanted = check_name(new)
        folder = self.path(name)
        if wanted == folder.name:
            return wanted
        self._refuse_taken(wanted, but=folder.name)
        with self._mine(folder, session) as mine:
            target = self.root / wanted
            self._guarded(folder, "cannot be renamed", lambda: self._rename(folder, target))
            mine.moved(target)
            mine.append(Renamed(name=wanted))
        return wanted

    def delete(self, name: str) -> None:
        """Put a session into the trash.

        Raises:
            SessionFileError: it is not there, a window has it open, or the disk refuses.
        """
        folder = self.path(name)
        with self._alone(folder):
            self._guarded(folder, "cannot be deleted", lambda: self.trash.put(folder))

    def undelete(self, name: str) -> str:
        """Bring the session of that name that was deleted last back; returns its name.

        Raises:
            SessionFileError: there is none in the trash, or the name is taken again.
        """
        wanted = check_name(name)
        self._refuse_taken(wanted)
        where = self.root / wanted
        self._guarded(where, "cannot be restored", lambda: self.trash.take(wanted, where))
        return wanted

    def strip(self, name: str, session: Session | None = None, why: str = "strip") -> int:
        """Delete a session's KV snapshots and keep its text; returns the bytes freed.

        Raises:
            SessionFileError: it is not there, or another window has it.
        """
        folder = self.path(name)
        with self._mine(folder, session) as mine:
            return mine.drop_snapshots(why=why)

    def keep_budget(self, n_bytes: int, keep: frozenset[str] = frozenset()) -> dict[str, int]:
        """Drop KV snapshots, of the session used longest ago first, until all fit.

        Text is never dropped, nor the KV of sessions in `keep` or open in a window.

        Returns:
            The bytes freed, by session.
        """
        freed: dict[str, int] = {}
        found = self.summaries()
        total = sum(summary.kv_bytes for summary in found)
        for summary in reversed(found):
            if total <= n_bytes:
                break
            if not summary.kv_bytes or summary.name in keep or summary.trouble:
                continue
            with contextlib.suppress(SessionFileError):
                freed[summary.name] = self.strip(summary.name, why="budget")
                total -= freed[summary.name]
        return freed

    def tidy(self, older_than_s: float, now_s: float) -> None:
        """Remove for good what was deleted, or never finished being made, so long ago."""
        with contextlib.suppress(OSError):
            self.trash.purge(older_than_s, now_s)

    # How.

    def _make(self, name: str, data: bytes, *, is_free: bool = False) -> Session:
        """A new session's folder appears whole, or not at all."""
        try:
            private_dir(self.root)
        except Ds4Error as error:
            raise SessionFileError(error.message, error.hint) from error.__cause__
        if not is_free:
            self._refuse_taken(name)
        folder = self.root / name
        self._guarded(folder, "cannot be made", lambda: self._fill(folder, data))
        return self.open(name)

    def _fill(self, folder: Path, data: bytes) -> None:
        fresh = self.root / f".new-{_random_id()[:12]}"
        self._ops.mkdir(fresh)
        try:
            files.write_new(self._ops, fresh / transcripts.FILE_NAME, data)
            self._ops.sync_dir(fresh)
            self._ops.rename(fresh, folder)
        except OSError:
            with contextlib.suppress(OSError):
                self._ops.remove_tree(fresh)
            raise
        self._ops.sync_dir(self.root)

    def _rename(self, old: Path, new: Path) -> None:
        self._ops.rename(old, new)
        self._ops.sync_dir(self.root)

    def _free_name(self, about: str) -> str:
        base = f"{self._clock()[:10]}-{safe_name(about)}"
        taken = {name.casefold() for name in self.names()}
        number = 1
        name = base
        while name.casefold() in taken:
            number += 1
            name = f"{base}-{number}"
        return check_name(name)

    def _refuse_taken(self, name: str, but: str = "") -> None:
        """Names that differ in case only are one name: some file systems say so."""
        for other in self.names():
            same = unicodedata.normalize("NFC", other).casefold() == name.casefold()
            if same and other != but:
                raise SessionFileError(
                    f"there is a session {other!r} already", "Choose another name."
                )
        if os.path.lexists(self.root / name) and not (
            but and but.casefold() == name.casefold()
        ):
            raise SessionFileError(
                f"{self.root / name}: something of that name is there", "Choose another name."
            )

    @contextlib.contextmanager
    def _mine(self, folder: Path, session: Session | None) -> Iterator[Session]:
        """The session if this process has it, else opened for this one change."""
        if session is not None:
            yield session
            return
        used = self._guarded(folder, "cannot be read", (folder / transcripts.FILE_NAME).lstat)
        opened = self.open(folder.name)
        try:
            if opened.is_read_only:
                raise _busy(folder.name, opened.owner)
            yield opened
        finally:
            opened.close()
            with contextlib.suppress(OSError):  # it was tended, not used
                path = opened.folder / transcripts.FILE_NAME
                os.utime(path, ns=(used.st_atime_ns, used.st_mtime_ns))

    @contextlib.contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """Hold a session's claim, whatever its transcript is like."""
        me = Owner.me(self._clock())
        held = self._guarded(
            folder, "cannot be changed", lambda: lock.claim(folder, me, self._ops)
        )
        if isinstance(held, Owner):
            raise _busy(folder.name, held)
        try:
            yield
        finally:
            held.release()

    def _guarded(self, path: Path, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise trouble(what, path, error) from error


def _busy(name: str, owner: Owner | None) -> SessionFileError:
    return SessionFileError(
        f"the session {name!r} is open in another window ({owner or 'owner unknown'})",
        "Close it there first.",
    )


def _is_taken(error: SessionFileError) -> bool:
    """Whether there was a folder of that name, though a moment before there was none."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EEXIST, errno.ENOTEMPTY)
