"""All settings with value, source and meaning; those of the running chat can be changed."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ds4chat.errors import SettingsError
from ds4chat.tui import live_settings
from ds4chat.tui.live_settings import AT_START, SettingsHost, Shown
from ds4chat.tui.problems import sentence
from ds4chat.tui.settings_book import SettingsBook
from ds4chat.tui.widgets.hint_line import HintLine

_HINT = "Enter changes · Esc closes"
_NOT_BOLD = " · not bold: at the next start"
_SMALL = (60, 16)  # columns, rows; below, the list comes before words and borders
_LOOK_S = 0.5  # how often it is looked whether a reply ended meanwhile


class SettingsScreen(ModalScreen[None]):
    """The settings table.

    Args:
        host: The chat whose settings change.
        book: The values of this start with their sources, and where changes are kept.
    """

    CSS_PATH = "settings.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f2,alt+2", "back", "Close", show=False, priority=True),
    ]

    def __init__(self, host: SettingsHost, book: SettingsBook) -> None:
        super().__init__()
        self._host = host
        self._book = book
        self._shown: list[Shown] = []
        self._edited: Shown | None = None
        self._list = OptionList(id="settings-list", markup=False)
        self._title = Static(
            f"Settings · {_HINT}{_NOT_BOLD}", id="settings-title", markup=False
        )
        self._about = Static(id="settings-about", markup=False)
        self._hints = HintLine()
        self._input = Input(id="settings-input", compact=True)

    def compose(self) -> ComposeResult:
        """List, what the chosen one means, and a line to type in."""
        with Vertical(id="settings-box"):
            yield self._title
            yield self._list
            yield self._about
            yield self._hints
            yield self._input

    def on_mount(self) -> None:
        """Fill the list."""
        self._input.display = False
        self._fill(0)
        self._list.focus()
        self.set_interval(_LOOK_S, self._look)

    def on_resize(self) -> None:
        """Where there is little room, show the list and what is chosen, and nothing else."""
        is_small = self.size.width < _SMALL[0] or self.size.height < _SMALL[1]
        self.set_class(is_small, "-small")
        self._title.update(f"Settings · {_HINT}{'' if is_small else _NOT_BOLD}")

    def _look(self) -> None:
        """Show what changed behind the screen."""
        if live_settings.shown(self._host, self._book) != self._shown:
            self._fill(self._list.highlighted or 0)

    def _fill(self, at: int) -> None:
        self._shown = live_settings.shown(self._host, self._book)
        self._list.clear_options()
        width = max(len(item.row.name) for item in self._shown)
        self._list.add_options(Option(_line(item, width)) for item in self._shown)
        self._list.highlighted = at

    @on(OptionList.OptionHighlighted)
    def _explain(self, event: OptionList.OptionHighlighted) -> None:
        row = self._shown[event.option_index].row
        flags = " ".join((*row.flags, *(flag for flag, _ in row.shortcuts)))
        self._about.update(
            Content("\n").join(
                [
                    Content(row.doc),
                    Content(f"{row.wanted} · {flags or row.variable}"),
                    self._keep(),
                ]
            )
        )

    def _keep(self) -> Content:
        path = self._book.config_file
        text = f"Changes are kept in {path}." if path is not None else "Changes are not kept."
        return Content.styled(text, "$secondary")

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        item = self._shown[event.option_index]
        if not item.is_live and self._book.config_file is None:
            self._say(f"{item.row.name} {AT_START}")
            return
        following = live_settings.following(item.row, item.value)
        if following is not None:
            self._change(item, following)
            return
        self._edited = item
        self._input.value = "" if item.value == "(empty)" else item.value
        self._input.display = True
        self._input.focus()

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        if self._edited is not None:
            self._change(self._edited, event.value)

    def _change(self, item: Shown, raw: str) -> None:
        try:
            said = live_settings.change(self._host, self._book, item.row, raw)
        except SettingsError as error:
            self._fill(self._list.highlighted or 0)
            self._say(sentence(error.message, error.hint))
            return
        self._close_input()
        self._fill(self._list.highlighted or 0)
        self._say(said)

    def _say(self, text: str) -> None:
        self._hints.say(text)

    def _close_input(self) -> None:
        self._edited = None
        self._input.display = False
        self._list.focus()

    def action_back(self) -> None:
        """Leave the line that is typed in, else the screen."""
        if self._edited is not None:
            self._close_input()
        else:
            self.dismiss()


def _line(item: Shown, width: int) -> Content:
    name = item.row.name.ljust(width)
    value = item.value if len(item.value) <= 24 else item.value[:23] + "…"
    source = f"{item.source} · {item.note}" if item.note else item.source
    if not item.is_live:
        return Content.styled(f"{name}  {value:<24}  {source}", "$secondary")
    return Content.assemble((name, "bold"), f"  {value:<24}  {source}")
