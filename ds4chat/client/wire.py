"""The client's end of the pipe: what is open, and what to say when the engine is gone.

No thread and no process here: `Ledger` follows the lines of one engine process, so that its
death leaves no command unanswered and no turn unfinished.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from ds4chat.protocol.codec import MAX_LINE_BYTES
from ds4chat.protocol.commands import Command
from ds4chat.protocol.events import (
    Done,
    Event,
    Refused,
    StatsSnapshot,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import FinishReason, Token, Usage

GONE = "the engine is not running"
RESTART_HINT = "Restart it."
KILLED = "(often: out of memory)"


@dataclass(slots=True)
class _OpenTurn:
    usage: Usage
    tokens: list[Token] = field(default_factory=list)


class Ledger:
    """Which commands are unanswered and which turns unfinished. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unanswered: dict[int, None] = {}
        self._turns: dict[int, _OpenTurn] = {}

    def sent(self, command: Command) -> None:
        """A command was queued."""
        with self._lock:
            self._unanswered[command.request_id] = None

    def received(self, event: Event) -> None:
        """An event came."""
        with self._lock:
            match event:
                case Done() | Refused():
                    self._unanswered.pop(event.request_id, None)
                case TurnStarted():
                    usage = Usage(n_prompt=event.n_prompt, n_cached=event.n_cached)
                    self._turns[event.turn_id] = _OpenTurn(usage)
                case TokensCommitted() if event.turn_id in self._turns:
                    tokens = self._turns[event.turn_id].tokens
                    tokens += [span.token for span in event.spans]
                case StatsSnapshot() if event.turn_id in self._turns:
                    self._turns[event.turn_id].usage = event.usage
                case TurnFinished():
                    self._turns.pop(event.turn_id, None)
                case _:
                    pass

    def close(self, message: str) -> list[Event]:
        """The events that the dead engine owed: the ends of turns, answers to commands.

        The figures of a turn are the last that it reported.
        """
        with self._lock:
            events: list[Event] = [
                TurnFinished(
                    turn_id=turn_id,
                    reason=FinishReason.ERROR,
                    usage=replace(turn.usage, n_tokens=len(turn.tokens)),
                    ids=tuple(token.id for token in turn.tokens),
                    message=message,
                    hint=RESTART_HINT,
                )
                for turn_id, turn in self._turns.items()
            ]
            events += [
                Refused(request_id=request_id, message=message, hint=RESTART_HINT)
                for request_id in self._unanswered
            ]
            self._turns.clear()
            self._unanswered.clear()
        return events


def lines(stream: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Read lines; one longer than `limit` bytes comes in parts, none of which will decode."""
    while line := stream.readline(limit + 1):
        yield line


def death(status: int) -> str:
    """Say in words how a process ended, from its return code."""
    if status >= 0:
        return f"the engine ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    often = f" {KILLED}" if name == "SIGKILL" else ""
    return f"the engine was killed by {name}{often}"
