"""A thread that writes for the screen, which must never wait for a disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ds4chat.errors import SessionFileError


class Writer(Protocol):
    """What a session writes through: a `Journal`, or an `Autosaver` before one."""

    @property
    def is_failing(self) -> bool:
        """Whether a write failed and the disk does not hold everything yet."""

    def append(self, line: bytes, *, sync: bool) -> None:
        """Write a line; with `sync`, have the disk hold it."""

    def retry(self) -> bool:
        """Try to write what waits; whether nothing waits any more."""

    def close(self) -> None:
        """Write what waits and end."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A line to write, or (no line) a call for all that waits."""

    line: bytes | None = None
    sync: bool = True
    done: threading.Event | None = None


class Autosaver:
    """Appends on a thread of its own, in order; failures are told to `on_trouble` there.

    Args:
        journal: where the lines go.
        on_trouble: called with each failure that the journal tells of. Must not block.
        on_relief: called when after a failure the disk holds everything again. Likewise.
    """

    def __init__(
        self,
        journal: Writer,
        on_trouble: Callable[[SessionFileError], None],
        on_relief: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._on_trouble = on_trouble
        self._on_relief = on_relief
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="autosave", daemon=True)
        self._thread.start()

    @property
    def is_failing(self) -> bool:
        """Whether a write failed and the disk does not hold everything yet."""
        return self._journal.is_failing

    def append(self, line: bytes, *, sync: bool) -> None:
        """Have a line written soon. Returns at once."""
        self._jobs.put(_Job(line, sync))

    def retry_soon(self) -> None:
        """Have what waits tried again. Returns at once."""
        self._jobs.put(_Job())

    def retry(self, timeout_s: float = 10.0) -> bool:
        """Wait until all lines so far are written; False: some are not, or it took longer."""
        done = threading.Event()
        self._jobs.put(_Job(done=done))
        return done.wait(timeout_s) and self._journal.retry()

    def close(self) -> None:
        """Write what waits and end the thread; a failure goes to `on_trouble`."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            was_failing = self._journal.is_failing
            self._guard(lambda job=job: self._do(job))  # type: ignore[misc]
            if was_failing and not self._journal.is_failing:
                self._on_relief()
            if job.done is not None:
                job.done.set()
        self._guard(self._journal.close)

    def _do(self, job: _Job) -> None:
        if job.line is not None:
            self._journal.append(job.line, sync=job.sync)
        else:
            self._journal.retry()

    def _guard(self, work: Callable[[], object]) -> None:
        try:
            work()
        except SessionFileError as error:
            self._on_trouble(error)
