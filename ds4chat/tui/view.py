"""What the controller needs of the screen. The screen implements it; tests do too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ds4chat.protocol.types import Channel, Span


class TranscriptView(Protocol):
    """The list of questions and replies."""

    def add_user(self, text: str, turn_id: int) -> None:
        """Show a question."""

    def begin_reply(self, turn_id: int) -> None:
        """Make room for its reply."""

    def append(
        self, turn_id: int, channel: Channel, spans: Sequence[Span], at_s: float = 0.0
    ) -> None:
        """Add tokens to a reply, committed after `at_s` engine seconds of decoding."""

    def finish_reply(self, turn_id: int, receipt: str) -> None:
        """End a reply with its receipt line."""

    def remove_from(self, turn_id: int) -> None:
        """Remove a turn and all that follows it."""

    def add_notice(self, text: str, level: str) -> None:
        """Show words of the program; `level` is `info`, `warning` or `error`."""

    def clear(self) -> None:
        """Remove everything."""


class ChatView(Protocol):
    """The screen around the transcript."""

    @property
    def transcript(self) -> TranscriptView:
        """Where replies go."""

    def show_now(self) -> None:
        """Redraw header, panel, status and keys from the controller's state."""

    def show_soon(self) -> None:
        """The same within a tenth of a second: for what changes with every token."""

    def fill_prompt(self, text: str) -> None:
        """Put text into the prompt, before what is there."""

    def restart_engine(self) -> None:
        """Restart the link, without blocking the screen."""

    def close_engine(self) -> None:
        """Close the link, without blocking the screen."""

    def redrawn(self) -> None:
        """A whole conversation was put on the screen."""

    def reply_ended(self, seconds: float) -> None:
        """A reply ended: bell when nobody looks."""
