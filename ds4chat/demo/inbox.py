"""The commands that wait for the scripted engine's thread."""

from __future__ import annotations

import queue
import threading

from ds4chat.protocol.commands import Command
from ds4chat.protocol.events import Refused


class Stop(Exception):  # noqa: N818 - the way out of the thread, not an error
    """`Shutdown` or `close` was called."""


def gone(command: Command) -> Refused:
    """The answer to a command that nobody reads any more."""
    return Refused(
        request_id=command.request_id,
        message="the engine is not running",
        hint="restart the engine",
    )


class Inbox:
    """A queue that is open as long as someone will read it: no command is lost at the end."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Command | None] = queue.Queue()
        self._lock = threading.Lock()
        self._is_open = True
        self.n_taken = 0  # by the thread that reads

    @property
    def is_open(self) -> bool:
        """Whether commands are taken."""
        return self._is_open

    @property
    def is_empty(self) -> bool:
        """Whether no command waits."""
        return self._queue.empty()

    def put(self, command: Command) -> bool:
        """Queue a command; False: nobody will read it."""
        with self._lock:
            if self._is_open:
                self._queue.put(command)
            return self._is_open

    def stop(self) -> None:
        """Let `take` raise Stop when all that waits is taken."""
        self._queue.put(None)

    def take(self, timeout: float | None = None) -> Command:
        """Wait for the next command.

        Raises:
            queue.Empty: none came within `timeout` seconds; 0: none waits.
            Stop: `stop` was called.
        """
        command = self._queue.get(block=timeout != 0, timeout=timeout)
        if command is None:
            raise Stop
        self.n_taken += 1
        return command

    def close(self) -> None:
        """Take no more commands; those that wait can still be taken."""
        with self._lock:
            self._is_open = False

    def rest(self) -> list[Command]:
        """Close, and take all that waits."""
        self.close()
        rest: list[Command] = []
        while not self._queue.empty():
            command = self._queue.get_nowait()
            if command is not None:
                rest.append(command)
        return rest
