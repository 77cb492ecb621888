"""What a slash command is, and what it needs of the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ds4chat.tui.controller import ChatController
from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.sessions_desk import SessionDesk


class CommandHost(Protocol):
    """What commands need: the chat, and what the screen alone can do."""

    @property
    def chat(self) -> ChatController:
        """The chat."""

    @property
    def sessions(self) -> SessionDesk | None:
        """What keeps the chat; None: nothing does."""

    def fill_prompt(self, text: str) -> None:
        """Put text into the prompt."""

    def copy(self, text: str, what: str) -> None:
        """Put text on the clipboard and say so."""

    def race(self, words: str) -> None:
        """Race a preset, a prompt, or (empty) the last prompt."""

    def speed_card(self) -> SpeedCard:
        """What the last race measured."""

    def set_colours(self, mode: str) -> None:
        """Choose what the colours mean."""

    def set_theme(self, name: str) -> None:
        """Choose another theme."""

    def theme_names(self) -> list[str]:
        """All themes."""

    def search(self, text: str) -> None:
        """Find text in the transcript; empty: ask for it."""

    def action_ghosts(self) -> None:
        """Show or hide the rejected drafts of the marked or the last turn."""

    def run_program(self, words: tuple[str, ...]) -> None:
        """Run a subcommand of this program beside the chat and show what it prints."""

    def action_edit_prompt(self) -> None:
        """Edit the prompt in the person's editor."""

    def action_empty_prompt(self) -> None:
        """Empty the prompt."""

    def action_sessions(self) -> None:
        """Show saved sessions."""

    def action_settings(self) -> None:
        """Show the settings screen."""

    def action_cycle_colours(self) -> None:
        """Choose the next meaning of the colours."""

    def action_toggle_panel(self) -> None:
        """Show or hide the panel."""

    def action_toggle_fold(self) -> None:
        """Fold or unfold reasoning."""

    def action_help(self) -> None:
        """Show the help screen."""

    def action_keys(self) -> None:
        """Show the key list."""

    def action_suspend(self) -> None:
        """Go back to the shell until `fg`."""

    def action_quit(self) -> None:
        """Leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """One command. `values` are the words that completion offers after it."""

    name: str
    args: str
    summary: str
    run: Callable[[CommandHost, str], None]
    values: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The command with its arguments."""
        return f"/{self.name} {self.args}".rstrip()

    @property
    def wants_words(self) -> bool:
        """Whether choosing it from a list is not enough to run it."""
        return bool(self.args) and not self.args.startswith("[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a text in the prompt could become, and how the list shows it.

    `wants_words`: more must be typed before it can be sent.
    """

    text: str
    shown: str
    wants_words: bool = False
