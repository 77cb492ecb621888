"""The engine as the screen sees it: something that takes commands and reports events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ds4chat.protocol.commands import Command
from ds4chat.protocol.events import Event

Emit = Callable[[Event], None]


class EngineLink(Protocol):
    """A running engine: the real process (`client`) or the scripted one (`demo`).

    `emit` may be called from any thread and must not block.
    """

    def start(self, emit: Emit) -> None:
        """Start the engine; `Hello` is the first event. Returns at once."""

    def send(self, command: Command) -> None:
        """Queue a command. Never blocks; if the engine is gone, `Refused` is emitted."""

    def restart(self) -> None:
        """End what is left of the engine and start a fresh one with the same `emit`."""

    def close(self) -> None:
        """End the engine within two seconds. Safe to call twice and when it never started."""

    @property
    def is_alive(self) -> bool:
        """Whether the engine process runs."""
