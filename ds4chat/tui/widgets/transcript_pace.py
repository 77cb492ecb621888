"""When to show what came: often enough to be smooth, seldom enough to leave time for keys."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App

FLUSH_INTERVAL_S = 0.05
COST_STRETCH = 4.0  # the interval is at least this many times the cost of the last flush
MAX_QUEUED_WRITES = 1


class Pace:
    """The times between flushes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with no flush behind.

        Args:
            clock: Seconds that never go back.
        """
        self._clock = clock
        self._last = float("-inf")
        self._cost = 0.0

    def delay(self) -> float:
        """Seconds until the next flush may happen, more than 0."""
        interval = max(FLUSH_INTERVAL_S, COST_STRETCH * self._cost)
        return max(0.001, self._last + interval - self._clock())

    def skip(self) -> None:
        """A flush was left out."""
        self._last = self._clock()

    def note(self, started: float) -> None:
        """A flush that began at `started` has ended."""
        self._last = self._clock()
        self._cost = self._last - started


def queued_writes(app: App[object]) -> int:
    """Frames that wait for the terminal; 0 where the driver does not tell.

    Textual's writer queue is private, and a full one blocks the event loop.
    """
    try:
        return int(app._driver._writer_thread._queue.qsize())  # type: ignore[union-attr]
    except AttributeError:
        return 0
