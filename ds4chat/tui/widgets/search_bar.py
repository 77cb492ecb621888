"""The line in which a person types what to find in the transcript."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.widgets.transcript_search import Found


class SearchInput(Input):
    """Takes text only; what is pasted cannot control the terminal."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "step(1)", "Next", show=False),
        Binding("shift+enter,up", "step(-1)", "Previous", show=False),
        Binding("escape", "close", "Close", show=False),
    ]

    class Stepped(Message):
        """The person wants the next (1) or the previous (-1) hit."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Closed(Message):
        """The person is done."""

    def action_step(self, step: int) -> None:
        """Ask for another hit."""
        self.post_message(self.Stepped(step))

    def action_close(self) -> None:
        """Ask to end the search."""
        self.post_message(self.Closed())

    def _on_paste(self, event: events.Paste) -> None:
        """Insert the first line."""
        event.prevent_default()
        event.stop()
        if event.text:
            self.insert_text_at_cursor(clean_line(event.text.splitlines()[0]))


class SearchBar(Horizontal):
    """Hidden until a search begins."""

    DEFAULT_CSS = """
    SearchBar { height: 1; padding: 0 1; background: $panel; display: none; }
    SearchBar.-shown { display: block; }
    SearchBar > #search-label { width: auto; color: $primary; text-style: bold; }
    SearchBar > #search-found { width: auto; padding: 0 0 0 1; color: $foreground; }
    SearchInput, SearchInput:focus {
        width: 1fr; height: 1; border: none; padding: 0; background: $panel;
    }
    """

    def __init__(self) -> None:
        super().__init__(id="search")
        self._input = SearchInput(compact=True, select_on_focus=False)
        self._found = Static("", id="search-found", markup=False)

    def compose(self) -> ComposeResult:
        """Label, input, what was found."""
        yield Static("find: ", id="search-label", markup=False)
        yield self._input
        yield self._found

    @property
    def is_shown(self) -> bool:
        """Whether a search goes on."""
        return self.has_class("-shown")

    def open(self, text: str) -> None:
        """Show the line; a text that is not empty replaces what stood there."""
        self.add_class("-shown")
        if text:
            self._input.value = clean_line(text)
            self._input.cursor_position = len(self._input.value)
        self._input.focus()

    def close(self) -> None:
        """Hide the line; its text stays for the next time."""
        self.remove_class("-shown")

    @property
    def text(self) -> str:
        """What to find."""
        return self._input.value

    def show(self, found: Found) -> None:
        """Say where in the hits the view is."""
        self._found.update(describe(found, self.text))


def describe(found: Found, text: str) -> str:
    """`3 of 17 · Enter next, Up previous, Esc closes`."""
    if not text:
        return "Esc closes"
    if not found.n:
        return "nothing found · Esc closes"
    return f"{found.current} of {found.n} · Enter next, Up previous, Esc closes"
