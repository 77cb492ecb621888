"""The thread that writes snapshots, so that the next prompt does not wait for the disk."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ds4chat.engine.snapshot_chain import Manifest
from ds4chat.engine.snapshot_files import DiskFiles, Files, clean, remove
from ds4chat.engine.snapshots import SnapshotData, write
from ds4chat.errors import Ds4Error, SnapshotError

MAX_WAITING = 8
"""Snapshots in memory that the disk has not taken yet."""

_log = logging.getLogger("ds4chat.snapshots")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job: `error` is None when all is on the disk."""

    folder: Path
    name: str  # empty for a cleaning
    manifest: Manifest | None = None
    error: SnapshotError | None = None
    seconds: float = 0.0


OnDone = Callable[[Outcome], None]
"""Called on the writer's thread, after everything is on the disk."""


class SnapshotWriter:
    """Writes, removes and cleans in the order of the calls. Close it to wait for the disk."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files or DiskFiles()
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._thread.start()

    def save(self, data: SnapshotData, name: str, on_done: OnDone) -> None:
        """Write a snapshot. Never waits: with the disk far behind, it fails at once."""
        self._put(data.folder, name, lambda: write(data, name, self._files), on_done)

    def remove(self, folder: Path, names: Sequence[str], on_done: OnDone) -> None:
        """Remove snapshots and the data that only they used."""
        self._put(folder, "", lambda: _nothing(remove(folder, names, self._files)), on_done)

    def clean(self, folder: Path, on_done: OnDone) -> None:
        """Remove what a killed save left in a folder that this process alone writes to."""
        self._put(folder, "", lambda: _nothing(clean(folder, self._files)), on_done)

    def wait(self) -> None:
        """Wait until everything asked for so far is done."""
        self._jobs.join()

    def close(self) -> None:
        """Finish what was asked for and end the thread."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()

    def _put(
        self, folder: Path, name: str, work: Callable[[], Manifest | None], on_done: OnDone
    ) -> None:
        def job() -> None:
            start = time.perf_counter()
            manifest, error = None, None
            try:
                manifest = work()
            except Ds4Error as problem:
                error = SnapshotError(problem.message, problem.hint)
            except Exception as problem:  # noqa: BLE001 - a thread's loop must outlive any job
                _log.exception("a snapshot job failed")
                error = SnapshotError(f"the snapshot failed: {problem}", "The log has more.")
            on_done(
                Outcome(
                    folder=folder,
                    name=name,
                    manifest=manifest,
                    error=error,
                    seconds=time.perf_counter() - start,
                )
            )

        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            error = SnapshotError(
                f"{MAX_WAITING} snapshots wait for the disk already: this one is left out",
                "The chat goes on; the next snapshot holds everything.",
            )
            on_done(Outcome(folder=folder, name=name, error=error))

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if job is None:
                    return
                job()
            finally:
                self._jobs.task_done()


def _nothing(_: tuple[str, ...]) -> None:
    """A job without a manifest."""
