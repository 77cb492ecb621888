"""What a full disk, a lost permission or a vanished folder costs: a message, never a word."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import ThinkMode
from ds4chat.store import transcripts
from ds4chat.store.files import FileOps
from ds4chat.store.journal import TakenOverError
from ds4chat.store.library import Library
from ds4chat.store.session import Session
from tests.unit.store import build


class BadDisk(FileOps):
    """A disk that refuses some operations while `broken` names them."""

    def __init__(self) -> None:
        self.broken: dict[str, int] = {}
        self.n_refused = 0

    def check(self, what: str) -> None:
        if what in self.broken:
            self.n_refused += 1
            raise OSError(self.broken[what], os.strerror(self.broken[what]))

    def write(self, fd: int, data: bytes) -> int:
        if "write" in self.broken and len(data) > 4:
            return super().write(fd, data[:4])  # a full disk takes a part first
        self.check("write")
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self.check("sync")
        super().sync(fd)

    def truncate(self, fd: int, n_bytes: int) -> None:
        self.check("truncate")
        super().truncate(fd, n_bytes)


@pytest.fixture
def disk() -> BadDisk:
    return BadDisk()


@pytest.fixture
def session(tmp_path: Path, disk: BadDisk) -> Session:
    found = Library(tmp_path / "s", ops=disk, clock=build.clock()).create("a")
    build.say(found, "before")
    return found


def saved(session: Session) -> list[str]:
    """Questions that the disk holds; fails on any damage."""
    found = transcripts.read(session.folder / transcripts.FILE_NAME)
    assert found.problems == []
    assert found.torn_bytes == 0
    return [turn.question for turn in found.tree.turns.values()]


@pytest.mark.parametrize(
    ("broken", "hint"),
    [
        ({"write": errno.ENOSPC}, "free some space"),
        ({"sync": errno.EIO}, "tried again"),
        ({"write": errno.EROFS, "truncate": errno.EROFS}, "read-only"),
        ({"sync": errno.EDQUOT, "truncate": errno.EACCES}, "quota"),
    ],
)
def test_a_failing_disk_is_told_once_and_nothing_is_lost(
    session: Session, disk: BadDisk, broken: dict[str, int], hint: str
) -> None:
    disk.broken = broken
    with pytest.raises(SessionFileError, match="cannot be saved") as caught:
        session.ask("during", ThinkMode.OFF)
    assert hint in caught.value.hint
    session.report(build.tokens(2, "still talking"))
    session.report(build.finished(2))
    assert session.n_unwritten > 0
    assert session.messages()[-1].text == "stilltalking"
    assert not session.flush()
    disk.broken = {}
    build.say(session, "after")
    assert session.n_unwritten == 0
    assert saved(session) == ["before", "during", "after"]


def test_a_second_trouble_is_told_again(session: Session, disk: BadDisk) -> None:
    for _ in range(2):
        disk.broken = {"write": errno.ENOSPC}
        with pytest.raises(SessionFileError):
            session.ask("x", ThinkMode.OFF)
        disk.broken = {}
        assert session.flush()


def test_lines_of_a_turn_that_were_not_synced_are_written_again(
    session: Session, disk: BadDisk
) -> None:
    """After a failed sync a system may have dropped what it took: the turn is rewritten."""
    session.ask("q", ThinkMode.OFF)
    session.report(build.tokens(2, "a b c"))
    disk.broken = {"sync": errno.EIO}
    with pytest.raises(SessionFileError):
        session.report(build.finished(2))
    assert session.n_unwritten == 2
    disk.broken = {}
    assert session.flush()
    assert saved(session) == ["before", "q"]


def test_closing_says_what_is_lost(session: Session, disk: BadDisk) -> None:
    disk.broken = {"write": errno.ENOSPC}
    with pytest.raises(SessionFileError):
        session.ask("x", ThinkMode.OFF)
    with pytest.raises(SessionFileError, match="cannot be saved"):
        session.close()
    session.close()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


def only_the_file(folder: Path) -> None:
    (folder / transcripts.FILE_NAME).unlink()


@pytest.mark.parametrize("vanish", [gone, only_the_file])
def test_a_vanished_folder_is_made_again_whole(
    session: Session, vanish: Callable[[Path], None]
) -> None:
    vanish(session.folder)
    build.say(session, "after")
    assert saved(session) == ["before", "after"]
    assert session.folder.stat().st_mode & 0o777 == 0o700
    other = Library(session.folder.parent).open("a")
    assert other.is_read_only
    build.say(session, "later")
    assert saved(session) == ["before", "after", "later"]


def test_a_vanished_disk_is_told_and_found_again(session: Session) -> None:
    root = session.folder.parent
    away = root.with_name("away")
    root.rename(away)
    with pytest.raises(SessionFileError, match="cannot be saved"):
        session.ask("during", ThinkMode.OFF)
    session.report(build.tokens(2, "x"))
    away.rename(root)
    session.report(build.finished(2))
    assert saved(session) == ["before", "during"]


def test_text_of_a_lost_folder_can_be_saved_elsewhere(session: Session, tmp_path: Path) -> None:
    shutil.rmtree(session.folder.parent)
    with pytest.raises(SessionFileError):
        session.ask("during", ThinkMode.OFF)
    copy = Library(tmp_path / "other").copy(session, "rescued")
    assert saved(copy) == ["before", "during"]
    assert copy.tree.turns == session.tree.turns


def test_another_file_in_its_place_is_left_alone(session: Session) -> None:
    path = session.folder / transcripts.FILE_NAME
    path.unlink()
    path.write_text("somebody else's")
    with pytest.raises(SessionFileError, match="cannot be saved"):
        session.ask("x", ThinkMode.OFF)
    assert path.read_text() == "somebody else's"
    assert session.n_unwritten == 1


def test_a_torn_line_is_cut_before_the_next_write(session: Session) -> None:
    session.close()
    path = session.folder / transcripts.FILE_NAME
    with path.open("ab") as file:
        file.write(b'{"kind":"asked","n":9,"te')
    again = Library(session.folder.parent).open("a")
    assert "was dropped" in again.notices[0]
    build.say(again, "after")
    assert saved(again) == ["before", "after"]


def test_a_lost_line_feed_is_put_back(session: Session) -> None:
    session.close()
    path = session.folder / transcripts.FILE_NAME
    path.write_bytes(path.read_bytes()[:-1])
    again = Library(session.folder.parent).open("a")
    build.say(again, "after")
    assert saved(again) == ["before", "after"]


def test_streamed_lines_reach_the_file_before_the_turn_ends(session: Session) -> None:
    session.ask("q", ThinkMode.OFF)
    session.report(build.tokens(2, "partial"))
    found = transcripts.read(session.folder / transcripts.FILE_NAME).tree
    assert found.turns[2].answer_text == "partial"
    assert found.turns[2].finished is None


def test_only_what_ends_something_waits_for_the_disk(tmp_path: Path) -> None:
    class Counting(FileOps):
        n_syncs = 0

        def sync(self, fd: int) -> None:
            self.n_syncs += 1
            super().sync(fd)

    ops = Counting()
    session = Library(tmp_path, ops=ops).create("a")
    before = ops.n_syncs
    build.talk(session, "q", ThinkMode.HIGH)
    assert ops.n_syncs - before == 2  # the question, the end


def test_after_a_takeover_the_old_window_only_reads(session: Session) -> None:
    taker = Library(session.folder.parent).open("a", takeover=True)
    with pytest.raises(TakenOverError, match="another window has taken the session"):
        session.ask("mine", ThinkMode.OFF)
    assert session.is_read_only
    build.say(taker, "theirs")
    with pytest.raises(SessionFileError, match="was not changed"):
        session.ask("again", ThinkMode.OFF)
    session.close()
    build.say(taker, "more")
    assert saved(taker) == ["before", "theirs", "more"]


def test_the_rest_of_a_reply_stays_in_memory_for_a_copy(session: Session) -> None:
    turn = session.ask("q", ThinkMode.OFF)
    taker = Library(session.folder.parent).open("a", takeover=True)
    with pytest.raises(TakenOverError):
        session.report(build.tokens(turn.id, "one"))
    session.report(build.tokens(turn.id, " two"))
    assert session.tree.turns[turn.id].answer_text == "onetwo"
    copy = Library(session.folder.parent).copy(session, "b")
    assert copy.tree.turns[turn.id].answer_text == "onetwo"
    assert taker.tree.turns[turn.id].answer_text == ""
    for each in (session, taker, copy):
        each.close()


def test_a_line_waits_while_another_window_is_at_the_transcript(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (session.folder / transcripts.FILE_NAME).open("r+b")
    fcntl.flock(other, fcntl.LOCK_EX)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            other.close()

    monkeypatch.setattr("ds4chat.store.lock.time.sleep", nap)
    build.say(session, "after")
    assert len(naps) == 3
    assert saved(session) == ["before", "after"]


def test_a_text_that_no_line_holds_is_refused_before_it_is_taken(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ds4chat.store.session.MAX_TEXT_CHARS", 10)
    with pytest.raises(SessionFileError, match="limit is 10"):
        session.ask("x" * 11, ThinkMode.OFF)
    assert list(session.tree.turns) == [1]


def test_ids_that_the_tokens_hold_are_not_written_twice(session: Session) -> None:
    build.talk(session, "q")
    turn = session.tree.turns[2]
    last = (session.folder / transcripts.FILE_NAME).read_bytes().splitlines()[-1]
    assert b'"kind":"finished"' in last
    assert b'"ids":[]' in last
    assert turn.finished is not None
    assert turn.finished.ids == tuple(turn.ids) != ()
    again = transcripts.read(session.folder / transcripts.FILE_NAME).tree
    assert again.turns[2].ids == turn.ids


def test_a_file_that_another_program_cut_is_told_and_can_be_saved_elsewhere(
    session: Session,
) -> None:
    path = session.folder / transcripts.FILE_NAME
    os.truncate(path, 100)
    with pytest.raises(SessionFileError, match="cannot be saved"):
        session.ask("during", ThinkMode.OFF)
    assert path.stat().st_size == 100
    copy = Library(session.folder.parent).copy(session, "b")
    assert saved(copy) == ["before", "during"]
