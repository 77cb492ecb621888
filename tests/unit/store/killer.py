"""Kills a process that writes a session, by a real SIGKILL, and looks at what is left.

`python -m tests.unit.store.killer each SCENARIO FOLDER` kills one process before, and for a
write also in the middle of, every file operation of a scenario; `... random N FOLDER SEED`
kills N processes that go on writing. Prints how many died. Runs in a process of its own,
because it forks.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds4chat.store import transcripts
from ds4chat.store.files import FileOps
from ds4chat.store.library import Library
from ds4chat.store.records import SnapshotSaved
from tests.unit.store import build

KILLS_A_SESSION = 25

State = dict[str, Any]
"""Session name (deleted ones begin with `trash/`) to its questions, replies and snapshots."""


class QuickOps(FileOps):
    """Waits for no disk: what a killed process wrote, the system has."""

    def sync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: Path) -> None:
        pass


class KillingOps(QuickOps):
    """Dies in the `at`-th operation, counted from 0; a write dies when half is written."""

    def __init__(self, at: int) -> None:
        self.n_left = at

    def step(self) -> None:
        if self.n_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.n_left -= 1

    def write(self, fd: int, data: bytes) -> int:
        if self.n_left == 1:
            super().write(fd, data[: len(data) // 2])
        self.step()
        self.step()
        return super().write(fd, data)

    def open(self, path: Path, flags: int) -> int:
        self.step()
        return super().open(path, flags)

    def truncate(self, fd: int, n_bytes: int) -> None:
        self.step()
        super().truncate(fd, n_bytes)

    def sync(self, fd: int) -> None:
        self.step()
        super().sync(fd)

    def sync_dir(self, path: Path) -> None:
        self.step()
        super().sync_dir(path)

    def mkdir(self, path: Path) -> None:
        self.step()
        super().mkdir(path)

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self.step()
        super().unlink(path)

    def remove_tree(self, path: Path) -> None:
        self.step()
        super().remove_tree(path)


@dataclass(frozen=True)
class Scenario:
    """`act` changes what `prepare` made; every state in between must be one of `allowed`."""

    prepare: Callable[[Library], None]
    act: Callable[[Library], None]
    is_gradual: bool = False  # text may also end at any line in between


def _one(library: Library) -> None:
    session = library.create("a")
    build.say(session, "before")
    session.snapshots_dir.mkdir()
    (session.snapshots_dir / "s1.json").write_text("{}")
    session.snapshot_saved(SnapshotSaved(name="s1", n_tokens=1, token_hash="x"))
    session.close()


def _nothing(library: Library) -> None:
    library.root.mkdir(parents=True)


def _talk(library: Library) -> None:
    session = library.open("a")
    build.say(session, "second")
    session.fork(1)
    build.say(session, "third")
    session.close()


def _deleted(library: Library) -> None:
    _one(library)
    library.delete("a")


SCENARIOS = {
    "create": Scenario(_nothing, lambda library: library.create("a").close()),
    "talk": Scenario(_one, _talk, is_gradual=True),
    "rename": Scenario(_one, lambda library: void(library.rename("a", "b"))),
    "delete": Scenario(_one, lambda library: library.delete("a")),
    "undelete": Scenario(_deleted, lambda library: void(library.undelete("a"))),
    "strip": Scenario(_one, lambda library: void(library.strip("a"))),
    "take over": Scenario(_one, lambda library: library.open("a", takeover=True).close()),
    "copy": Scenario(_one, lambda library: void(library.copy(library.read("a"), "b"))),
}


def void(_: object) -> None:
    """Drop a result."""


def state(root: Path) -> State:
    """What can be read of a folder of sessions; fails on any damage."""
    found: State = {}
    for prefix, folder in (("", root), ("trash/", root / ".trash")):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith("."):
                continue
            reading = transcripts.read(path / transcripts.FILE_NAME)
            assert reading.problems == [], reading.problems
            name = prefix + path.name.rpartition("~")[2]
            turns = [(t.question, t.answer_text) for t in reading.tree.turns.values()]
            found[name] = {"turns": turns, "kv": list(reading.tree.snapshots)}
    return found


def each(name: str, folder: Path) -> int:
    """Kill at every operation of a scenario; returns how many processes died."""
    scenario = SCENARIOS[name]
    old, new = _sound(scenario, folder / "sound")
    at = 0
    while True:
        root = folder / f"at-{at}"
        scenario.prepare(Library(root, ops=QuickOps(), clock=build.clock()))
        status = _in_child(
            lambda root=root, at=at: scenario.act(  # type: ignore[misc]
                Library(root, ops=KillingOps(at), clock=build.clock())
            )
        )
        if status == 0:
            assert state(root) == new
            return at
        assert os.WIFSIGNALED(status), "the scenario failed"
        _check(scenario, state(root), old, new, at)
        _goes_on(root)
        at += 1


def _sound(scenario: Scenario, root: Path) -> tuple[State, State]:
    library = Library(root, ops=QuickOps(), clock=build.clock())
    scenario.prepare(library)
    old = state(root)
    scenario.act(library)
    return old, state(root)


def _check(scenario: Scenario, found: State, old: State, new: State, at: int) -> None:
    if scenario.is_gradual:
        turns, last = found["a"]["turns"], new["a"]["turns"]
        expected = last[: len(turns)]
        assert len(turns) >= len(old["a"]["turns"])
        assert [q for q, _ in turns] == [q for q, _ in expected]
        assert all(a == b or a == "" for (_, a), (_, b) in zip(turns, expected, strict=True))
        return
    assert found in (old, new), f"killed at operation {at}: {found}, not {old} or {new}"


def _goes_on(root: Path) -> None:
    """Whatever was left can be opened and written to."""
    library = Library(root, ops=QuickOps(), clock=build.clock())
    for name in library.names():
        session = library.open(name)
        assert not session.is_read_only
        build.say(session, "afterwards")
        session.close()
        assert list(library.read(name).tree.turns.values())[-1].question == "afterwards"


def kill_at_random(n: int, root: Path, seed: int) -> int:
    """Kill processes that talk and go on with one session; no acknowledged turn may be lost."""
    library = Library(root, ops=QuickOps(), clock=build.clock())
    rng = random.Random(seed)
    for place in range(n):
        if place % KILLS_A_SESSION == 0:
            session = library.create(f"s{place}")
            session.close()
            folder = session.folder
            saved: set[int] = set()
        saved |= _kill_after(rng.randrange(1, 60), folder)
        reading = transcripts.read(folder / transcripts.FILE_NAME)
        assert reading.problems == [], reading.problems
        whole = [turn for turn in reading.tree.turns.values() if turn.finished is not None]
        assert saved <= {turn.id for turn in whole}
        for turn in whole:
            assert not turn.damage
            assert turn.answer_text == "wordsforturn" + turn.question
    return n


class MarkingOps(QuickOps):
    """Writes a byte to a pipe around every operation, so that a kill can fall on any."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def write(self, fd: int, data: bytes) -> int:
        os.write(self._pipe, b".")
        half = super().write(fd, data[: len(data) // 2 or len(data)])
        os.write(self._pipe, b".")
        return half

    def sync(self, fd: int) -> None:
        os.write(self._pipe, b".")
        super().sync(fd)
        os.write(self._pipe, b".")


def _kill_after(n_marks: int, folder: Path) -> set[int]:
    """Let a child talk, kill it after so many marks; returns the turns it called saved."""
    marks_out, marks_in = os.pipe()
    acks_out, acks_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(marks_out)
        os.close(acks_out)
        _run_and_leave(lambda: _talk_forever(folder, marks_in, acks_in))
    os.close(marks_in)
    os.close(acks_in)
    n_seen = 0
    while n_seen < n_marks and (got := os.read(marks_out, n_marks - n_seen)):
        n_seen += len(got)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert n_seen == n_marks, "the child failed by itself"
    acks = b""
    while got := os.read(acks_out, 1 << 16):
        acks += got
    os.close(marks_out)
    os.close(acks_out)
    return {int(line) for line in acks.split()}


def _talk_forever(folder: Path, marks: int, acks: int) -> None:
    session = Library(folder.parent, ops=MarkingOps(marks), clock=build.clock()).open(
        folder.name
    )
    assert not session.is_read_only
    while True:
        number = session.tree.next_turn_id
        build.say(session, str(number), f"words for turn {number}")
        os.write(acks, b"%d\n" % number)


def _in_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        _run_and_leave(work)
    return os.waitpid(pid, 0)[1]


def _run_and_leave(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException:  # noqa: BLE001 - a forked child must end here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    what, name, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if what == "each":
        n_killed = each(name, place)
    else:
        n_killed = kill_at_random(int(name), place / "random", int(sys.argv[4]))
    sys.stdout.write(f"{n_killed}\n")
    shutil.rmtree(place)
