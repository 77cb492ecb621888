from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat.store import lock
from ds4chat.store.files import FileOps
from ds4chat.store.lock import Owner, SessionLock

ME = Owner(pid=os.getpid(), host=platform.node(), started="now")
OPS = FileOps()


def claim(folder: Path) -> SessionLock:
    held = lock.claim(folder, ME, OPS)
    assert isinstance(held, SessionLock)
    return held


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    held = claim(tmp_path)
    assert lock.claim(tmp_path, ME, OPS) == ME
    assert lock.holder(tmp_path) == ME
    assert str(ME.pid) in str(ME)
    held.release()
    held.release()
    assert lock.holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_dead_owners_file_is_taken(tmp_path: Path) -> None:
    words = {"pid": dead_pid(), "host": platform.node(), "started": "then"}
    (tmp_path / "lock").write_text(json.dumps(words))
    claim(tmp_path)
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("words", ["", "garbage", "[" * 9000, '{"pid": "x"}', '{"pid": 1e999}'])
def test_any_words_in_a_free_file_do(tmp_path: Path, words: str) -> None:
    (tmp_path / "lock").write_text(words)
    claim(tmp_path)


def test_a_holder_that_wrote_no_words_is_still_one(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock.claim(tmp_path, ME, OPS) == lock.NOBODY


def test_taking_over_ends_the_first_claim(tmp_path: Path) -> None:
    first = claim(tmp_path)
    second = lock.take_over(tmp_path, ME, OPS)
    assert not first.is_mine()
    first.release()
    assert second.is_mine()
    assert lock.holder(tmp_path) == ME
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    folder = tmp_path / "session"
    folder.mkdir()
    (folder / "lock").symlink_to(outside)
    with pytest.raises(OSError):
        lock.claim(folder, ME, OPS)
    assert outside.read_text() == "precious"


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_flock")
def test_without_claims_the_words_decide(tmp_path: Path) -> None:
    words = {"pid": os.getppid(), "host": platform.node(), "started": "then"}
    (tmp_path / "lock").write_text(json.dumps(words))
    assert lock.claim(tmp_path, ME, OPS) == Owner(**words)  # type: ignore[arg-type]
    words["pid"] = dead_pid()
    (tmp_path / "lock").write_text(json.dumps(words))
    claim(tmp_path)


def test_owner_words_cannot_style_a_terminal(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        json.dump({"pid": 1, "host": "\x1b[31mevil\n", "started": "x" * 900}, file)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        other = lock.claim(tmp_path, ME, OPS)
    assert isinstance(other, Owner)
    assert str(other).isprintable()
    assert len(str(other)) < 200


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from ds4chat.store import lock\n"
        "from ds4chat.store.files import FileOps\n"
        "held = lock.claim(pathlib.Path(sys.argv[1]), lock.Owner.me('then'), FileOps())\n"
        "print(type(held).__name__, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "SessionLock\n"
        other = lock.claim(tmp_path, ME, OPS)
        assert isinstance(other, Owner)
        assert other.pid == child.pid
        child.kill()
        child.wait()
    claim(tmp_path)


class Meddling(FileOps):
    """Does something each time a file was opened."""

    def __init__(self, meddle: Callable[[int], None]) -> None:
        self._meddle = meddle
        self.n_opened = 0

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self.n_opened += 1
        self._meddle(self.n_opened)
        return fd


def test_a_file_that_goes_while_it_is_claimed_is_not_the_claim(tmp_path: Path) -> None:
    def meddle(n_opened: int) -> None:
        if n_opened == 1:
            (tmp_path / "lock").unlink()

    ops = Meddling(meddle)
    held = lock.claim(tmp_path, ME, ops)
    assert isinstance(held, SessionLock)
    assert held.is_mine()
    assert ops.n_opened == 2


def test_somebody_who_only_looks_does_not_make_a_dead_owner_live(tmp_path: Path) -> None:
    words = {"pid": dead_pid(), "host": platform.node(), "started": "then"}
    (tmp_path / "lock").write_text(json.dumps(words))
    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)

        def meddle(n_opened: int) -> None:
            if n_opened == 3:
                fcntl.flock(looking, fcntl.LOCK_UN)

        assert isinstance(lock.claim(tmp_path, ME, Meddling(meddle)), SessionLock)


def test_an_owner_is_named_with_a_time_that_reads_well() -> None:
    owner = Owner(pid=7, host="box", started="2026-11-29T22:28:36.853Z")
    assert str(owner) == "process 7 on box since 2026-11-29 22:28 UTC"
    assert str(replace(owner, started="then")) == "process 7 on box since then"
