"""The prompt: several lines, a history, and text that cannot harm the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.document._document import Document
from textual.document._document_navigator import DocumentNavigator
from textual.message import Message
from textual.widgets import TextArea

from ds4chat.tui.history import History
from ds4chat.tui.markdown.clean import clean
from ds4chat.tui.widgets.completion import CompletionList
from ds4chat.tui.widgets.wrapped import PromptRows

_NEWLINE_KEYS = ("shift+enter", "ctrl+j", "alt+enter", "ctrl+enter")
_NOT_OURS = {"f6", "f7", "pageup", "pagedown"}  # keys of TextArea that the chat needs
_UNDO = "ctrl+underscore,super+z"  # as in a shell: Ctrl+Z suspends


_LINE_ENDS = re.compile("\r\n|[\r\x85\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def safe(text: str) -> str:
    """Text for the prompt: control characters become visible, every line end a line feed.

    Nothing else changes, since the text is what the model will read: marks that right-to-left
    scripts need stay, though the transcript shows them as replaced.
    """
    return _CONTROLS.sub(lambda found: clean(found[0]), _LINE_ENDS.sub("\n", text))


def _kept_bindings() -> list[BindingType]:
    return [
        replace(binding, key=_UNDO)
        if isinstance(binding, Binding) and binding.action == "undo"
        else binding
        for binding in TextArea.BINDINGS
        if not (isinstance(binding, Binding) and binding.key in _NOT_OURS)
    ]


class PromptArea(TextArea, inherit_bindings=False):
    """A text area in which Enter sends.

    Args:
        take_back: removes and returns the newest waiting message; Up asks it first.
        offers: the list above the prompt.
        history: what was sent before; None: begins empty and is kept nowhere.
        is_animated: whether the cursor blinks.
    """

    BINDINGS: ClassVar[list[BindingType]] = _kept_bindings()

    DEFAULT_CSS = """
    PromptArea {
        height: auto; max-height: 100%; width: 1fr;
        border: none; padding: 0; background: $surface;
        &:focus { border: none; }
    }
    """

    class Sent(Message):
        """The person pressed Enter on some text."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class QuitWanted(Message):
        """Ctrl+D in an empty prompt."""

    class ScrollWanted(Message):
        """The person wants to page through the transcript: -1 up, 1 down."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    def __init__(
        self,
        take_back: Callable[[], str | None],
        offers: CompletionList,
        *,
        history: History | None = None,
        is_animated: bool = True,
    ) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask something; / for commands",
        )
        self.cursor_blink = is_animated
        self._take_back = take_back
        self._offers = offers
        self._recalled = ""
        self._history = history or History()

    def _set_document(self, text: str, _language: str | None) -> None:
        """Begin a document, in no programming language, whose rows know their height."""
        self._highlight_query = None
        self.document = Document(text)
        self.wrapped_document = PromptRows(self.document, tab_width=self.indent_width)
        self.navigator = DocumentNavigator(self.wrapped_document)
        self._build_highlight_map()
        self.move_cursor((0, 0))
        self._rewrap_and_refresh_virtual_size()

    def fill(self, text: str) -> None:
        """Put text before the draft and the cursor at its end."""
        joined = f"{text}\n{self.text}" if self.text.strip() else text
        self.load(joined)

    def remember(self) -> bool:
        """Keep the draft for Up; False if it is gone with this run."""
        return self._history.add(self.text.strip("\n"))

    def empty(self) -> None:
        """Remove the whole text; undo and Up bring it back."""
        self.remember()
        self.clear()

    def drop(self, text: str) -> None:
        """Empty the prompt where it holds just this text."""
        if self.text == safe(text):
            self.load("")

    def load(self, text: str) -> None:
        """Replace the whole text; the cursor goes to its end."""
        self.text = safe(text)
        self.move_cursor(self.document.end)

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste as one piece, whatever lines it has."""
        event.prevent_default()
        event.stop()
        if result := self._replace_via_keyboard(safe(event.text), *self.selection):
            self.move_cursor(result.end_location)

    async def _on_key(self, event: events.Key) -> None:
        """Handle the keys that differ from a plain text area."""
        if self._handle(event) or await self._act(event.key):
            event.prevent_default()
            event.stop()

    async def _act(self, key: str) -> bool:
        """Carry out a key that moves or deletes at once.

        Textual does so when the key has come up to the app; text that came with it in one
        burst would be there before.
        """
        for binding in self._bindings.key_to_bindings.get(key, ()):
            if await self.app.run_action(binding.action, self):
                return True
        return False

    def _handle(self, event: events.Key) -> bool:
        key = event.key
        if key == "enter":
            self._enter()
        elif key in _NEWLINE_KEYS:
            self._replace_via_keyboard("\n", *self.selection)
        elif key == "tab":
            self._complete()
        elif key in ("pageup", "pagedown"):
            self.post_message(self.ScrollWanted(-1 if key == "pageup" else 1))
        elif key == "ctrl+d" and not self.text:
            self.post_message(self.QuitWanted())
        else:
            return (key == "up" and self._up()) or (key == "down" and self._down())
        return True

    @property
    def is_recalled(self) -> bool:
        """Whether it shows a text of the history as that was: Up and Down walk on there."""
        return bool(self.text) and self.text == self._recalled

    def _complete(self) -> None:
        choice = self._offers.choice(self.text)
        if choice is not None:
            self.load(choice)

    def _enter(self) -> None:
        """Send; a marked command first takes the place of what was typed."""
        marked = None if self.is_recalled else self._offers.marked(self.text)
        if marked is not None:
            self.load(marked.text)
        if marked is None or not marked.wants_words:
            self._send()

    def _up(self) -> bool:
        return (not self.is_recalled and self._offers.walk(self.text, -1)) or self._older()

    def _down(self) -> bool:
        return (not self.is_recalled and self._offers.walk(self.text, 1)) or self._newer()

    def _send(self) -> None:
        """Hand the text over and begin anew at once: the next keys may be here already."""
        text = self.text.strip("\n")
        if text.strip():
            self._history.add(text)
            self._recalled = ""
            self.load("")
            self.post_message(self.Sent(text))

    def _older(self) -> bool:
        """Take back a waiting message, or show an older one; False: move the cursor."""
        if self.navigator.is_first_wrapped_line(self.cursor_location) is False:
            return False
        if not self.text and (waiting := self._take_back()) is not None:
            self.load(waiting)
            return True
        return self._show(self._history.older(self.text))

    def _newer(self) -> bool:
        if self.navigator.is_last_wrapped_line(self.cursor_location) is False:
            return False
        return self._show(self._history.newer())

    def _show(self, text: str | None) -> bool:
        """Show a text of the history, if there is one."""
        if text is not None:
            self.load(text)
            self._recalled = self.text
        return text is not None
