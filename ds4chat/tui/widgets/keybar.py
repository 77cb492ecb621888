"""The bottom line: the keys that do something now."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.keys import KeyRow


def labels(chat: ChatController, rows: Sequence[KeyRow]) -> list[tuple[str, str]]:
    """(key, label) in order: first what the moment asks for."""
    found: list[tuple[str, str]] = []
    if chat.can_restart:
        found += [(row.shown, "restart") for row in rows if row.action == "restart"]
    elif chat.is_busy or chat.phase in (Phase.STARTING, Phase.LOADING):
        what = "take back" if chat.conversation.queue and not chat.is_busy else "stop"
        found += [(row.shown, what) for row in rows if row.action == "stop"]
    if chat.is_reasoning:
        found += [(row.shown, "answer now") for row in rows if row.action == "think"]
    for row in rows:
        if row.label and not (chat.is_reasoning and row.action == "think"):
            found.append((row.shown, row.label))
    return found


TURN_KEYS = (
    ("Enter", "tokens"), ("c", "copy"), ("y", "code"), ("e", "edit"), ("r", "retry"),
    ("f", "fork"), ("g", "ghosts"), ("Alt+Up", "before"), ("Alt+Down", "after"),
    ("Esc", "back"),
)  # fmt: skip


def fit(found: list[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """As many as the width holds; the last one, quit, always."""
    *others, last = found
    room = width - 1 - _columns(last)
    kept: list[tuple[str, str]] = []
    for pair in others:
        room -= _columns(pair)
        if room < 0:
            break
        kept.append(pair)
    return [*kept, last]


def _columns(pair: tuple[str, str]) -> int:
    return len(pair[0]) + len(pair[1]) + 3


class KeyBar(Widget):
    """One line of keys."""

    DEFAULT_CSS = """
    KeyBar { height: 1; background: $panel; color: $foreground; }
    """

    def __init__(self, chat: ChatController, rows: Sequence[KeyRow]) -> None:
        super().__init__(id="keys")
        self._chat = chat
        self._rows = rows
        self._is_on_turn = False
        self._shown: list[tuple[str, str]] = []

    def show(self) -> None:
        """Redraw if anything changed."""
        if self._labels() != self._shown:
            self.refresh()

    def _labels(self) -> list[tuple[str, str]]:
        found = list(TURN_KEYS) if self._is_on_turn else labels(self._chat, self._rows)
        return fit(found, self.size.width)

    def show_turn_keys(self, is_on_turn: bool) -> None:
        """Show the keys of a marked turn, or those of the chat."""
        self._is_on_turn = is_on_turn
        self.refresh()

    def render(self) -> Content:
        """The line."""
        self._shown = self._labels()
        shown: list[str | tuple[str, str]] = [" "]
        for key, label in self._shown:
            shown += [(key, "bold $primary"), f" {label}  "]
        return Content.assemble(*shown)
