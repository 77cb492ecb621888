"""Commands on their way from the pipe to the engine's thread.

One thread reads lines and only that: it queues most commands, and sets the flags of a running
turn for the few that cannot wait for it (`Cancel`, `Pause`, `Resume`, `SetSpeculation`,
`StopThinking`). Those it answers itself.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ds4chat.engine.turn_plan import TurnControls
from ds4chat.errors import ProtocolError
from ds4chat.protocol.codec import MAX_LINE_BYTES, decode_command
from ds4chat.protocol.commands import (
    Cancel,
    Command,
    Pause,
    Resume,
    SetSpeculation,
    Shutdown,
    StopThinking,
    Submit,
)
from ds4chat.protocol.engine import Emit
from ds4chat.protocol.events import Done, Refused

UNKNOWN_REQUEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A `Submit` that has its lane to itself, and the flags of its turn."""

    submit: Submit
    controls: TurnControls


class Nudge:
    """Wakes the engine's thread: the flags of a lane that it may have waited for changed."""


Item = Command | Accepted | Nudge | None
"""What the engine's thread gets; None: nothing more will come."""

Steering = Cancel | Pause | Resume | SetSpeculation | StopThinking
"""Commands that set a flag of a running turn."""


class Inbox:
    """The queue, and the flags of each lane's turn.

    Args:
        emit: where answers go.
        on_end: called on the reading thread when the process is to end.
    """

    def __init__(self, emit: Emit, on_end: Callable[[], None]) -> None:
        self._emit = emit
        self._on_end = on_end
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._controls: dict[int, TurnControls] = {}

    def read(self, lines: Iterable[bytes | None]) -> None:
        """Take lines until there are no more, then cancel what runs (the reader thread)."""
        for line in lines:
            self._take(line)
        self.cancel_all()
        self._queue.put(None)
        self._on_end()

    @property
    def is_empty(self) -> bool:
        """Whether `get` would wait."""
        return self._queue.empty()

    def get(self) -> Item:
        """The next item; waits for one."""
        return self._queue.get()

    def release(self, lane: int) -> None:
        """The lane's turn has ended."""
        with self._lock:
            self._controls.pop(lane, None)

    def cancel_all(self) -> None:
        """End every turn, those still queued too."""
        with self._lock:
            for controls in self._controls.values():
                controls.cancel()

    def _take(self, line: bytes | None) -> None:
        if line is None:
            self._refuse(UNKNOWN_REQUEST, f"a line longer than {MAX_LINE_BYTES:,} bytes")
            return
        if not line.strip():
            return
        try:
            command = decode_command(line.decode("ascii", "replace"))
        except ProtocolError as error:
            self._refuse(UNKNOWN_REQUEST, error.message, error.hint)
            return
        match command:
            case Submit():
                self._admit(command)
            case Cancel() | Pause() | Resume() | SetSpeculation() | StopThinking():
                self._steer(command)
            case Shutdown():
                self.cancel_all()
                self._queue.put(command)
                self._on_end()
            case _:
                self._queue.put(command)

    def _admit(self, submit: Submit) -> None:
        controls = TurnControls()
        with self._lock:
            is_busy = submit.lane in self._controls
            if not is_busy:
                self._controls[submit.lane] = controls
        if is_busy:
            self._refuse(
                submit.request_id,
                f"a reply is running in lane {submit.lane}",
                "Stop it first, or wait for its end.",
            )
        else:
            self._queue.put(Accepted(submit=submit, controls=controls))

    def _steer(self, command: Steering) -> None:
        with self._lock:
            controls = self._controls.get(command.lane)
        if controls is None:
            self._refuse(command.request_id, f"no reply is running in lane {command.lane}")
            return
        match command:
            case Cancel():
                controls.cancel()
            case Pause() | Resume():
                controls.is_paused = isinstance(command, Pause)
            case SetSpeculation():
                controls.set_spec(command.spec, keep_on=command.keep_on)
            case StopThinking():
                controls.stop_thinking()
        self._emit(Done(request_id=command.request_id))
        self._queue.put(Nudge())

    def _refuse(self, request_id: int, message: str, hint: str = "") -> None:
        self._emit(Refused(request_id=request_id, message=message, hint=hint))
