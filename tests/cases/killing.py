"""Kills a process at every call into the system that a save makes, and looks at what is left.

`python -m tests.cases.killing SCENARIO FOLDER` forks a child for each of them, so it runs in a
process of its own. Prints how many died, how many different states they left, and what is left
by one whose disk takes only a few bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ds4chat.cli import sessions
from ds4chat.errors import Ds4Error
from ds4chat.store.library import Library
from ds4chat.tui import sessions_export, settings_file
from ds4chat.tui.files import write_private
from ds4chat.tui.history import MAX_ENTRIES, History
from tests.unit.store import build

FEW_BYTES = 4
LAST = 30  # calls at which to kill: before these a save only reads
_SYSTEM = ("posix", "_io")
"""Modules whose functions are calls into the system; `_io` has the methods of open files."""


@dataclass(frozen=True)
class Scenario:
    """`act` changes what `prepare` made in a folder; `look` reads it as a person would."""

    prepare: Callable[[Path], None]
    act: Callable[[Path], object]
    look: Callable[[Path], object]


def _text(name: str) -> Callable[[Path], object]:
    def look(folder: Path) -> object:
        path = folder / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    return look


def _history(folder: Path) -> object:
    return History(folder / "history.jsonl")._entries


def _long_history(folder: Path) -> None:
    lines = "".join(f'"question {n}"\n' for n in range(2 * MAX_ENTRIES + 1))
    (folder / "history.jsonl").write_text(lines)


def _short_history(folder: Path) -> None:
    (folder / "history.jsonl").write_text('"one"\n"two"\n')


def _session(folder: Path) -> None:
    session = Library(folder / "sessions", clock=build.clock()).create("a")
    build.say(session, "What is it?")
    session.close()


def _replaced(folder: Path) -> None:
    _session(folder)
    (folder / "a.md").write_text("an earlier export, which a person has worked on\n" * 50)


def _export(*more: str) -> Callable[[Path], object]:
    return lambda folder: sessions.run(
        [
            "--sessions",
            str(folder / "sessions"),
            "export",
            "a",
            "-o",
            str(folder / "a.md"),
            *more,
        ]
    )


def _export_on_screen(folder: Path) -> None:
    read = Library(folder / "sessions").read("a")
    sessions_export.write(read.tree, "a", folder / "a.md")


SCENARIOS = {
    "setting": Scenario(
        lambda folder: void(
            (folder / "c.toml").write_text('theme = "dark"\n# mine\ntemp = 0.5\n')
        ),
        lambda folder: settings_file.keep(folder / "c.toml", "temp", 0.7),
        _text("c.toml"),
    ),
    "first setting": Scenario(
        lambda folder: None,
        lambda folder: settings_file.keep(folder / "c.toml", "temp", 0.7),
        _text("c.toml"),
    ),
    "history": Scenario(
        _short_history, lambda folder: History(folder / "history.jsonl").add("three"), _history
    ),
    "long history": Scenario(
        _long_history, lambda folder: History(folder / "history.jsonl"), _history
    ),
    "copied text": Scenario(
        lambda folder: void((folder / "copied").write_text("old " * 99)),
        lambda folder: write_private(folder / "copied", "new " * 999),
        _text("copied"),
    ),
    "export": Scenario(_session, _export(), _text("a.md")),
    "export again": Scenario(_replaced, _export("--force"), _text("a.md")),
    "export on the screen": Scenario(_session, _export_on_screen, _text("a.md")),
}


def void(_: object) -> None:
    """Drop a result."""


class _Kill:
    """A profiler that dies before the `at`-th call into the system."""

    def __init__(self, at: int) -> None:
        self.n_left = at

    def __call__(self, _frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        owner = (
            getattr(function, "__module__", None)
            or type(getattr(function, "__self__", None)).__module__
        )
        if owner in _SYSTEM:
            if self.n_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.n_left -= 1


def every_call(scenario: Scenario, folder: Path) -> tuple[int, int]:
    """Kill at every call; returns how many died, and the number of different states seen.

    Raises:
        AssertionError: a state is neither the old nor the new one, or cannot be gone on from.
    """
    sound = folder / "sound"
    sound.mkdir(parents=True)
    scenario.prepare(sound)
    old = scenario.look(sound)
    n_calls = _count(lambda: scenario.act(sound))
    new = scenario.look(sound)
    seen: list[object] = []
    start, at = max(0, n_calls - LAST), max(0, n_calls - LAST)
    while True:
        place = folder / f"at-{at}"
        place.mkdir()
        scenario.prepare(place)
        status = _in_child(lambda place=place: scenario.act(place), at)  # type: ignore[misc]
        found = scenario.look(place)
        if status == 0:
            assert found == new
            return at - start, len(seen)
        assert os.WIFSIGNALED(status), "the scenario failed"
        assert found in (old, new), f"killed at call {at}: {found!r}"[:2000]
        if found not in seen:
            seen.append(found)
        if found == old:
            scenario.act(place)
            assert scenario.look(place) == new, f"killed at call {at}: it cannot be repeated"
        at += 1


def _count(work: Callable[[], object]) -> int:
    """Calls into the system."""
    counter = _Kill(-1)
    sys.setprofile(counter)
    work()
    sys.setprofile(None)
    return -1 - counter.n_left


def full_disk(scenario: Scenario, folder: Path) -> list[str]:
    """Let a save fail that has begun to write; returns the files that it left behind.

    Raises:
        AssertionError: the state is not the old one.
    """
    folder.mkdir()
    scenario.prepare(folder)
    old, before = scenario.look(folder), _files(folder)

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FEW_BYTES, FEW_BYTES))
        with contextlib.suppress(Ds4Error):
            scenario.act(folder)

    assert _in_child(act, -1) == 0
    found = scenario.look(folder)
    assert found == old, f"a full disk left {found!r}"[:2000]
    return sorted(_files(folder) - before)


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _in_child(work: Callable[[], object], at: int) -> int:
    """The wait status of a child that works; it dies at call `at`, counted from 0."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.dup2(nowhere, 1)
            sys.setprofile(_Kill(at))
            work()
            sys.setprofile(None)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def main(name: str, folder: Path) -> None:
    """Run a scenario in every way."""
    scenario = SCENARIOS[name]
    n_died, n_states = every_call(scenario, folder)
    left = full_disk(scenario, folder / "full")
    sys.stdout.write(json.dumps({"died": n_died, "states": n_states, "left": left}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
