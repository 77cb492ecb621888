"""What the chat tells whoever keeps it. Values and a protocol only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ds4chat.sizes import GB
from ds4chat.tui.state import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPlan:
    """Where sessions lie, and with which one the chat begins.

    Attributes:
        root: the folder of sessions.
        is_usual: it is the person's data folder, which a resume command need not name.
        resume: name of the session to go on with; empty: a new one.
        notes: said when that session is open.
        kv_budget_bytes: of the KV snapshots of all sessions together; beyond it those of the
            sessions used longest ago go.
    """

    root: Path
    is_usual: bool = True
    resume: str = ""
    notes: tuple[str, ...] = ()
    kv_budget_bytes: int = 20 * GB


class Keeper(Protocol):
    """Hears of every change of the conversation that is no event of the engine."""

    @property
    def is_read_only(self) -> bool:
        """Whether another window writes to the session."""

    @property
    def is_unsaved(self) -> bool:
        """Whether the disk refused something of this chat that it does not hold yet."""

    def may_ask(self) -> bool:
        """Whether a message may be sent; says why not."""

    def asked(self, turn: Turn) -> None:
        """A message was sent; none of its events came yet."""

    def compacted(self, on_held: Callable[[int], None]) -> bool:
        """The conversation begins at another turn.

        Args:
            on_held: called later with the number of tokens that the engine then holds of it.

        Returns:
            Whether the engine looks for a KV state that fits; if not, `on_held` is not called.
        """

    def rewound(self, turn_id: int) -> None:
        """That turn and all after it were taken back."""

    def began_anew(self) -> None:
        """The conversation was left for an empty one."""


class NoKeeper:
    """Keeps nothing."""

    is_read_only = False
    is_unsaved = False

    def may_ask(self) -> bool:
        """Always."""
        return True

    def asked(self, turn: Turn) -> None:
        """Nothing is kept."""

    def compacted(self, on_held: Callable[[int], None]) -> bool:  # noqa: ARG002
        """There is no KV state to look for."""
        return False

    def rewound(self, turn_id: int) -> None:
        """Nothing is kept."""

    def began_anew(self) -> None:
        """Nothing is kept."""
