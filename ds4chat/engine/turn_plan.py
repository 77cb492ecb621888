"""What a turn is given: the plan, the tools, and the flags that other threads set."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ds4chat.protocol.engine import Emit
from ds4chat.protocol.types import Sampling, SpecOptions
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.stops import StopGate


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChange:
    """How to speculate from the next round on. `keep_on`: not parking until the turn ends."""

    spec: SpecOptions
    keep_on: bool


class TurnControls:
    """What other threads ask of a running turn. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self.is_paused = False
        self._stop_thinking = False
        self._spec: SpecChange | None = None

    def cancel(self) -> None:
        """End the turn after the round or prefill chunk in progress."""
        self._is_cancelled = True

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._is_cancelled

    def stop_thinking(self) -> None:
        """Close the reasoning before the next round."""
        with self._lock:
            self._stop_thinking = True

    def set_spec(self, spec: SpecOptions, *, keep_on: bool = False) -> None:
        """Speculate with `spec` from the next round on; `keep_on`: without parking."""
        with self._lock:
            self._spec = SpecChange(spec=spec, keep_on=keep_on)

    def take(self) -> tuple[bool, SpecChange | None]:
        """Return and clear (stop thinking asked, new options)."""
        with self._lock:
            taken = self._stop_thinking, self._spec
            self._stop_thinking, self._spec = False, None
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """What to answer and how. `ids` is the rendered conversation, the opener included."""

    turn_id: int
    lane: int
    ids: tuple[int, ...]
    ctx: int
    end_ids: frozenset[int]  # empty: end tokens do not end the reply
    close_think_id: int | None  # None: the model has no reasoning section
    block_size: int  # 0: no drafter
    sampling: Sampling
    spec: SpecOptions
    max_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTools:
    """What a turn works with besides its session."""

    splitter: ChannelSplitter
    gate: StopGate
    text_of: Callable[[int], str]
    emit: Emit
    clock: Callable[[], float]  # seconds, monotonic
    plain_step_s: Callable[[], float | None]  # of this process, None until timed
    spec_log: Callable[[str], None] | None = None  # takes ds4's own log lines
