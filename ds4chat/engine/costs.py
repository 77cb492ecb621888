"""What a verify pass and a draft cost on this machine: running medians of real times.

Pure: seconds are given, no clock is read. One cost model serves all sessions of a process.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

_KEPT = 15
"""Samples in a running median: enough to outvote a stall, few enough to follow the context."""
_MAX_AGE = 256
"""Passes after which a time is out of date: the context, or the chat, is another by then."""
_MIN_SAMPLES = 3
"""Uncalibrated plain steps that make a plain rate."""
_FIRST_GAP = 16
_LAST_GAP = 128
"""Passes without a plain step after which one is timed again. The first gap stands behind a
single time, which may have met a stall; each further time in the median doubles it. A plain
step in 128 costs a winning reply well below a percent."""


@dataclass(slots=True)
class _Times:
    """Times of one row count, each with the number of the pass that it belongs to.

    Of an even number of times the lower middle one counts: a stall only ever adds.
    """

    samples: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    is_warm: bool = False  # the first uncalibrated pass may compile kernels: it is not counted
    n_added: int = 0

    def add(self, tick: int, seconds: float) -> None:
        if not self.is_warm:
            self.is_warm = True
            return
        while self.samples and tick - self.samples[0][0] > _MAX_AGE:
            self.samples.popleft()
        self.samples.append((tick, seconds))
        self.n_added += 1

    def is_fresh(self, tick: int) -> bool:
        return bool(self.samples) and self.n_waited(tick) <= _MAX_AGE

    def n_waited(self, tick: int) -> int:
        """Passes since the newest time."""
        return tick - self.samples[-1][0]

    @property
    def median_s(self) -> float:
        return median_low([seconds for _, seconds in self.samples])


class CostModel:
    """T(rows) in seconds for a target pass over 1..8 rows, and the seconds of one draft.

    A calibration after loading seeds it (`set_measured`, `set_draft`), real steps keep it up
    (`note`, `note_draft`). Times that are not positive and finite are ignored. Without a
    calibration the first pass of each row count is not counted, because it may compile kernels.

    A row count that was not timed for a while counts as unknown again: it is interpolated from
    the others, tried where that looks good, and so measured afresh. (No scaling with the
    context: what grows with it differs from back end to back end.)
    """

    def __init__(self) -> None:
        self._rows: dict[int, _Times] = {}
        self._draft = _Times()
        self._tick = 0

    def set_measured(self, rows: int, seconds: float) -> None:
        """Replace what is known of `rows` by one calibrated time.

        Raises:
            ValueError: `rows` is below 1.
        """
        if rows < 1:
            raise ValueError(f"a pass over {rows} rows has no cost")
        if is_usable(seconds):
            self._rows[rows] = _calibrated(self._tick, seconds)

    def note(self, rows: int, seconds: float) -> None:
        """Add the time of a real pass over `rows` rows."""
        self._tick += 1
        if is_usable(seconds):
            self._rows.setdefault(rows, _Times()).add(self._tick, seconds)

    def set_draft(self, seconds: float) -> None:
        """Replace what is known of the draft by one calibrated time."""
        if is_usable(seconds):
            self._draft = _calibrated(self._tick, seconds)

    def note_draft(self, seconds: float) -> None:
        """Add the time of a real draft."""
        if is_usable(seconds):
            self._draft.add(self._tick, seconds)

    @property
    def draft_s(self) -> float:
        """Seconds of one draft; 0 until one was timed."""
        return self._draft.median_s if self._draft.samples else 0.0

    @property
    def plain_step_s(self) -> float | None:
        """Seconds of a plain step, T(1), also if timed long ago; None until one was timed."""
        times = self._rows.get(1)
        return times.median_s if times is not None and times.samples else None

    @property
    def n_plain_wanted(self) -> int:
        """How many plain steps should be timed before the plain rate can be trusted.

        What rests on few times, a calibration among them, is soon tried again: drafting that is
        measured against one stalled step would look like a gain for ever.
        """
        times = self._rows.get(1)
        n_more = _MIN_SAMPLES - (0 if times is None else times.n_added)
        if times is None or n_more > 0:
            return n_more
        gap = min(_LAST_GAP, _FIRST_GAP << (len(times.samples) - 1))
        return int(times.n_waited(self._tick) >= gap)

    def pass_s(self, rows: int) -> float | None:
        """Give T(rows) in seconds: measured, else interpolated; None if nothing was timed.

        A row count between two measured ones lies on the line between them, one above the
        largest on the line through the two largest (never falling), one below the smallest
        costs what the smallest does.
        """
        known = [
            (r, times.median_s)
            for r, times in sorted(self._rows.items())
            if times.is_fresh(self._tick) or (r == 1 and times.samples)
        ]
        if not known:
            return None
        below = [point for point in known if point[0] <= rows]
        above = [point for point in known if point[0] > rows]
        if not below:
            return known[0][1]
        if below[-1][0] == rows or (not above and len(below) == 1):
            return below[-1][1]
        if above:
            return _on_line(below[-1], above[0], rows)
        return max(below[-1][1], _on_line(below[-2], below[-1], rows))


def is_usable(seconds: float) -> bool:
    """Say whether a time can be used: positive and finite."""
    return math.isfinite(seconds) and seconds > 0


def _calibrated(tick: int, seconds: float) -> _Times:
    times = _Times(is_warm=True)
    times.add(tick, seconds)
    times.n_added = _MIN_SAMPLES  # enough to begin with
    return times


def _on_line(left: tuple[int, float], right: tuple[int, float], rows: int) -> float:
    slope = (right[1] - left[1]) / (right[0] - left[0])
    return left[1] + slope * (rows - left[0])
