"""Saved sessions: find one, open it, rename, delete, strip."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ds4chat import sizes
from ds4chat.errors import SessionFileError
from ds4chat.store.summary import Summary
from ds4chat.tui import sessions_manage, sessions_rows
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.problems import sentence
from ds4chat.tui.sessions_desk import SessionDesk

KEYS = "Enter open   ^E rename   ^X delete   ^Z undelete   ^S strip KV   Esc back"
_FILTER, _RENAME = "type to filter", "new name; Enter renames, Esc keeps"


class SessionsScreen(ModalScreen[None]):
    """The list of sessions over the chat.

    Args:
        desk: the chat's sessions.
        clock: seconds since 1970.
    """

    CSS_PATH = "sessions.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", show=False, priority=True),
        Binding("down", "move(1)", "next", show=False, priority=True),
        Binding("up", "move(-1)", "previous", show=False, priority=True),
        Binding("ctrl+e", "rename", "rename", show=False, priority=True),
        Binding("ctrl+x", "delete", "delete", show=False, priority=True),
        Binding("ctrl+z", "undelete", "bring the last deleted back", show=False, priority=True),
        Binding("ctrl+s", "strip", "drop KV snapshots", show=False, priority=True),
        Binding("ctrl+q", "app.quit", "quit", show=False, priority=True),
    ]

    def __init__(self, desk: SessionDesk, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._desk = desk
        self._clock = clock
        self._found: list[Summary] = []
        self._shown: list[Summary] = []
        self._renaming = ""
        self._deleted: list[str] = []

    def compose(self) -> ComposeResult:
        """Filter, list, keys."""
        yield Input(placeholder=_FILTER, id="sessions-filter")
        yield OptionList(id="sessions-list", markup=False)
        yield Static("", id="sessions-said", markup=False)
        yield Static(KEYS, id="sessions-keys", markup=False)

    def on_mount(self) -> None:
        """Read the folder."""
        self._read()
        self.query_one(Input).focus()

    @property
    def chosen(self) -> Summary | None:
        """The session under the bar."""
        place = self.query_one(OptionList).highlighted
        return self._shown[place] if place is not None and self._shown else None

    def _read(self) -> None:
        try:
            self._found = self._desk.library.summaries()
        except SessionFileError as error:
            self._say_error(error)
        self._show()

    def _show(self) -> None:
        wanted = "" if self._renaming else self.query_one(Input).value
        rows = self.query_one(OptionList)
        before = rows.highlighted or 0
        self._shown = [s for s in self._found if sessions_rows.fits(s, wanted)]
        rows.clear_options()
        rows.add_options([Option(self._row(summary)) for summary in self._shown])
        if self._shown:
            rows.highlighted = min(before, len(self._shown) - 1)
        elif not self._found:
            self._say("There are no saved sessions yet.")

    def _row(self, summary: Summary) -> Text:
        is_open = self._desk.session is not None and self._desk.session.name == summary.name
        name = clean_line(summary.name) + (" (this chat)" if is_open else "")
        about = sessions_rows.about(summary, self._clock())
        row = Text(f"{name}\n", style="bold")
        row.append(f"  {about}", style="not bold dim")
        row.no_wrap = True
        row.overflow = "ellipsis"
        return row

    def _say(self, text: str) -> None:
        self.query_one("#sessions-said", Static).update(clean_line(text))

    def _say_error(self, error: SessionFileError) -> None:
        self._say(sentence(error.message, error.hint))

    def _try(self, work: Callable[[], str]) -> None:
        """Do it, say what came of it, and read the folder again."""
        try:
            self._say(work())
        except SessionFileError as error:
            self._say_error(error)
        self._read()

    @on(Input.Changed)
    def _filter(self) -> None:
        if not self._renaming:
            self._show()

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        if self._renaming:
            name, self._renaming = self._renaming, ""
            self._try(lambda: self._rename(name, event.value))
            self._ask(_FILTER)
        else:
            self._open()

    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        chosen = self.chosen
        if chosen is None or not self.is_current:  # opened by the Enter before this one
            return
        desk, name = self._desk, chosen.name
        self.dismiss()
        desk.attempt(lambda: desk.open(name))

    def _rename(self, name: str, new: str) -> str:
        return f"Renamed to {sessions_manage.rename(self._desk, name, new)}."

    def _ask(self, words: str, value: str = "") -> None:
        line = self.query_one(Input)
        line.placeholder = words
        line.value = value
        line.focus()

    def action_leave(self) -> None:
        """Stop renaming, else go back to the chat."""
        if self._renaming:
            self._renaming = ""
            self._ask(_FILTER)
            self._show()
        else:
            self.dismiss()

    def action_move(self, step: int) -> None:
        """The next or previous session."""
        rows = self.query_one(OptionList)
        if step > 0:
            rows.action_cursor_down()
        else:
            rows.action_cursor_up()

    def action_rename(self) -> None:
        """Ask for a new name."""
        if self.chosen is not None:
            self._renaming = self.chosen.name
            self._ask(_RENAME, self.chosen.name)

    def action_delete(self) -> None:
        """Put the session into the trash."""
        chosen = self.chosen
        if chosen is None:
            return

        def delete() -> str:
            sessions_manage.delete(self._desk, chosen.name)
            self._deleted.append(chosen.name)
            return f"Deleted {chosen.name}; Ctrl+Z brings it back."

        self._try(delete)

    def action_undelete(self) -> None:
        """Bring the session that was deleted last back."""
        if not self._deleted:
            self._say("Nothing was deleted here; /undelete NAME brings older ones back.")
            return
        self._try(lambda: f"{self._desk.library.undelete(self._deleted.pop())} is back.")

    def action_strip(self) -> None:
        """Drop the KV snapshots and keep the text."""
        chosen = self.chosen
        if chosen is not None:
            desk, name = self._desk, chosen.name
            self._try(lambda: f"{sizes.size(sessions_manage.strip(desk, name))} of KV freed.")
