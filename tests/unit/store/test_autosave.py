from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import ThinkMode
from ds4chat.store import transcripts
from ds4chat.store.autosave import Autosaver
from ds4chat.store.journal import Journal
from ds4chat.store.library import Library
from ds4chat.store.session import Session
from tests.unit.store import build
from tests.unit.store.test_journal import BadDisk


class SlowDisk(BadDisk):
    """A disk whose sync waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()

    def sync(self, fd: int) -> None:
        assert self.go.wait(30)
        super().sync(fd)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def troubles() -> list[SessionFileError]:
    return []


@pytest.fixture
def others() -> set[threading.Thread]:
    """Threads that other tests left."""
    return set(threading.enumerate())


@pytest.fixture
def session(
    tmp_path: Path,
    disk: SlowDisk,
    troubles: list[SessionFileError],
    others: set[threading.Thread],
) -> Session:
    found = Library(tmp_path, ops=disk, clock=build.clock()).create("a")

    def wrap(journal: Journal) -> Autosaver:
        return Autosaver(journal, troubles.append)

    found.write_through(wrap)
    return found


def questions(session: Session) -> list[str]:
    tree = transcripts.read(session.folder / transcripts.FILE_NAME).tree
    return [turn.question for turn in tree.turns.values()]


def test_a_slow_disk_holds_nobody_up(session: Session, disk: SlowDisk) -> None:
    disk.go.clear()
    for number in range(20):
        build.say(session, str(number))
    assert len(session.messages()) == 40
    disk.go.set()
    assert session.flush()
    assert questions(session) == [str(number) for number in range(20)]
    session.close()


def test_trouble_is_told_once_and_all_is_written_in_the_end(
    session: Session, disk: SlowDisk, troubles: list[SessionFileError]
) -> None:
    disk.broken = {"write": 28}
    for number in range(3):
        build.say(session, str(number))
    assert not session.flush()
    assert [("cannot be saved" in trouble.message) for trouble in troubles] == [True]
    disk.broken = {}
    assert session.flush()
    session.close()
    assert questions(session) == ["0", "1", "2"]


def test_closing_writes_what_waits(
    session: Session, disk: SlowDisk, others: set[threading.Thread]
) -> None:
    assert any(t.name == "autosave" for t in set(threading.enumerate()) - others)
    disk.go.clear()
    build.say(session, "last")
    disk.go.set()
    session.close()
    session.close()
    assert questions(session) == ["last"]
    assert not any(t.name == "autosave" for t in set(threading.enumerate()) - others)


def test_closing_on_a_bad_disk_tells_it(
    session: Session, disk: SlowDisk, troubles: list[SessionFileError]
) -> None:
    disk.broken = {"sync": 5}
    session.ask("lost", ThinkMode.OFF)
    session.close()
    assert len(troubles) == 2


def test_a_takeover_is_told_by_the_thread(
    session: Session, troubles: list[SessionFileError]
) -> None:
    other = Library(session.folder.parent).open("a", takeover=True)
    session.ask("mine", ThinkMode.OFF)
    session.flush()
    assert "taken the session 'a' over" in troubles[0].message
    assert session.is_read_only
    session.close()
    other.close()
