"""Disks that fail or kill at a chosen step of a save; run as a program, kills at every one.

`python -m tests.unit.engine.broken_disk JOB`: JOB is a JSON file with `folder` (copied for each
kill), `out`, `name`, `data` (a file with the bytes of the data file), `manifest` (a manifest
whose last link is to be replaced) and `n`. Prints how many kills there were.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ds4chat.engine.snapshot_chain import Link, Manifest, decode_manifest
from ds4chat.engine.snapshot_files import DiskFiles, write_snapshot

PIECES = 5
"""The data is written in that many pieces."""


class CountedFiles(DiskFiles):
    """Counts the steps; `strike` is called before step `at`, or in the middle of its bytes."""

    def __init__(self, at: int, strike: Callable[[], None], *, in_the_middle: bool) -> None:
        self.count = 0
        self.steps: list[str] = []
        self._at = at
        self._strike = strike
        self._in_the_middle = in_the_middle

    def _step(self, what: str) -> bool:
        self.steps.append(what)
        self.count += 1
        is_due = self.count - 1 == self._at
        if is_due and not (self._in_the_middle and what == "write"):
            self._strike()
        return is_due

    def make_folder(self, path: Path) -> None:
        self._step("make_folder")
        super().make_folder(path)

    def create(self, path: Path) -> int:
        self._step("create")
        return super().create(path)

    def write(self, handle: int, piece: memoryview) -> None:
        if self._step("write"):
            super().write(handle, piece[: len(piece) // 2])
            self._strike()
        super().write(handle, piece)

    def sync(self, handle: int) -> None:
        self._step("sync")
        super().sync(handle)

    def close(self, handle: int) -> None:
        super().close(handle)
        self._step("close")

    def rename(self, old: Path, new: Path) -> None:
        self._step("rename")
        super().rename(old, new)

    def sync_folder(self, path: Path) -> None:
        self._step("sync_folder")
        super().sync_folder(path)

    def remove(self, path: Path) -> None:
        self._step("remove")
        super().remove(path)


def failing(at: int, number: int = errno.ENOSPC) -> CountedFiles:
    """A disk that refuses step `at` (in the middle, if it writes) and works otherwise."""

    def refuse() -> None:
        raise OSError(number, os.strerror(number))

    return CountedFiles(at, refuse, in_the_middle=True)


def save(files: DiskFiles, folder: Path, job: dict[str, Any], data: bytes) -> Manifest:
    """The save of a job into a folder."""
    template = decode_manifest(Path(job["manifest"]).read_bytes(), "template")

    def finish(link: Link) -> Manifest:
        return replace(template, links=(*template.links[:-1], link))

    size = -(-len(data) // PIECES)
    chunks = [data[i * size : (i + 1) * size] for i in range(PIECES)]
    return write_snapshot(files, folder, job["name"], chunks, finish, job["n"])


def _kills() -> Iterator[tuple[int, bool]]:
    at = 0
    while True:
        yield at, False
        yield at, True
        at += 1


def _is_killed(files: DiskFiles, folder: Path, job: dict[str, Any], data: bytes) -> bool:
    child = os.fork()
    if child == 0:
        save(files, folder, job, data)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def main(path: str) -> None:
    """Kill a save of the job at every step."""
    job = json.loads(Path(path).read_text())
    data = Path(job["data"]).read_bytes()
    for count, (at, in_the_middle) in enumerate(_kills()):
        folder = Path(job["out"], f"kill-{at}-{'half' if in_the_middle else 'before'}")
        shutil.copytree(job["folder"], folder)
        files = CountedFiles(
            at, lambda: os.kill(os.getpid(), signal.SIGKILL), in_the_middle=in_the_middle
        )
        if not _is_killed(files, folder, job, data):
            sys.stdout.write(json.dumps(count))
            return


if __name__ == "__main__":
    main(sys.argv[1])
