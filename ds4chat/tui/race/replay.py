"""A finished race once more, both lanes at once, each at the speed of its own engine clock."""

from __future__ import annotations

from collections.abc import Sequence

from ds4chat.tui.race.race import Recorded


class Replay:
    """Gives back recorded tokens when their time has come. The caller brings the time."""

    def __init__(self, recorded: Sequence[Recorded], started_s: float) -> None:
        self._todo = sorted(recorded, key=lambda item: item.at_s)
        self._next = 0
        self._started_s = started_s
        self._paused_s: float | None = None

    def clock_s(self, now_s: float) -> float:
        """Seconds since its start, pauses excluded."""
        return (self._paused_s if self._paused_s is not None else now_s) - self._started_s

    def due(self, now_s: float) -> Sequence[Recorded]:
        """What is to be shown now and was not given before."""
        first, clock_s = self._next, self.clock_s(now_s)
        while self._next < len(self._todo) and self._todo[self._next].at_s <= clock_s:
            self._next += 1
        return self._todo[first : self._next]

    @property
    def is_over(self) -> bool:
        """Whether all was shown."""
        return self._next >= len(self._todo)

    @property
    def is_paused(self) -> bool:
        """Whether its clock stands."""
        return self._paused_s is not None

    def toggle_pause(self, now_s: float) -> None:
        """Stop the clock, or let it go on."""
        if self._paused_s is None:
            self._paused_s = now_s
        else:
            self._started_s += now_s - self._paused_s
            self._paused_s = None
