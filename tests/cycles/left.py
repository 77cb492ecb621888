"""What must hold after a cycle: no process, no lock, no half-written file."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ds4chat.engine import owner, snapshot_files
from ds4chat.store.library import Library
from ds4chat.store.lock import FILE_NAME as LOCK
from ds4chat.store.tree import Turn

GONE_WITHIN_S = 60.0  # a hang is longer; a busy machine may need some of it
_FOLDERS = {"CONFIG": "config", "DATA": "data", "STATE": "state"}


class Wrong(AssertionError):
    """Something that must hold does not."""


def wanted(holds: bool, words: str) -> None:
    if not holds:
        raise Wrong(words)


@contextmanager
def at_home(home: Path) -> Iterator[None]:
    """Have this process and its children keep their files in `home`."""
    names = {f"XDG_{name}_HOME": str(home / folder) for name, folder in _FOLDERS.items()}
    names |= {"HOME": str(home), "DS4CHAT_CPU_BLAS": "off"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def wait_for(holds: Callable[[], bool], words: str, patience_s: float = GONE_WITHIN_S) -> None:
    """Wait until it holds; Wrong if it never does."""
    deadline = time.monotonic() + patience_s
    while not holds():
        wanted(time.monotonic() < deadline, words)
        time.sleep(0.005)


def processes_at(home: Path) -> list[int]:
    """Processes that were started with their files in `home`, zombies left out."""
    mark = f"HOME={home}\0".encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with suppress(OSError, IndexError):
                state = (place / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and mark in (place / "environ").read_bytes():
                    found.append(int(place.name))
    return found


def all_gone(home: Path) -> None:
    """Every process of the cycle ends by itself; what does not is ended and told of."""
    try:
        wait_for(lambda: not processes_at(home), "a process still runs")
    except Wrong:
        left = processes_at(home)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise Wrong(f"processes still run after {GONE_WITHIN_S:g} s: {left}") from None


def children(pid: int) -> list[int]:
    """Child processes, whichever thread started them."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(word) for word in task.read_text().split()]
    return found


def nobody_holds(model: Path, *, was_killed: bool) -> None:
    """No claim on the model is left; one of a killed process may lie there until asked for."""
    files = list(owner.folder().iterdir())
    wanted(was_killed or not files, f"claims are left: {[f.name for f in files]}")
    wanted(not owner.holders(model), "somebody still holds the model")
    left = list(owner.folder().iterdir())
    wanted(not left, f"dead claims were not removed: {[f.name for f in left]}")


def snapshots_are_whole(folder: Path, *, was_killed: bool) -> None:
    """Each snapshot that exists can be read to its last byte; no temporary file is left."""
    if not folder.is_dir():
        return
    found = snapshot_files.scan(folder)
    wanted(not found.problems, f"damaged snapshots: {found.problems}")
    for manifest in found.manifests.values():
        for link in manifest.links:
            snapshot_files.read_link(folder, link)  # raises if the hash is another
    rest = [path.name for path in folder.iterdir() if path.suffix == ".tmp"]
    wanted(was_killed or not rest, f"temporary files are left: {rest}")


def sessions_are_whole(root: Path, questions: list[str], *, was_killed: bool) -> list[Turn]:
    """The one session holds a beginning of `questions`, each reply whole; its turns."""
    rest = [p.name for p in root.iterdir() if p.name != ".trash"] if root.is_dir() else []
    library = Library(root)
    names = library.names()
    wanted(len(names) <= 1, f"sessions: {names}")
    strange = sorted(set(rest) - set(names))
    wanted(was_killed or not strange, f"left in the folder of sessions: {strange}")
    if not names:
        return []
    session = library.read(names[0])
    wanted(session.owner is None, f"{session.owner} still holds it")
    turns = session.tree.path()
    asked = [turn.question for turn in turns]
    wanted(asked == questions[: len(asked)], f"asked {questions}, kept {asked}")
    for turn in turns:
        wanted(not turn.damage, f"turn {turn.id}: {turn.damage}")
        ids = _ids(turn)
        wanted(turn.ids == ids, f"turn {turn.id}: {len(turn.ids)} ids, {len(ids)} spans")
    for turn in turns[:-1]:
        wanted(turn.finished is not None, f"turn {turn.id} has no end")
    _folder_is_clean(session.folder, was_killed=was_killed)
    snapshots_are_whole(session.snapshots_dir, was_killed=was_killed)
    return turns


def _ids(turn: Turn) -> list[int]:
    """Ids of the spans; one for a cut character at the end names its token again."""
    spans = list(turn.spans())
    if len(spans) > 1 and spans[-1].token == spans[-2].token:
        del spans[-1]
    return [span.token.id for span in spans]


def _folder_is_clean(folder: Path, *, was_killed: bool) -> None:
    known = {"transcript.jsonl", "snapshots", *((LOCK,) if was_killed else ())}
    rest = sorted(path.name for path in folder.iterdir() if path.name not in known)
    wanted(not rest, f"left in the session's folder: {rest}")
