"""All settings with value, source and meaning; those of the running chat can be changed."""

from __future__ import annotations

from pathlib import Path
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
from ds4chat.settings import Settings
from ds4chat.tui import live_settings
from ds4chat.tui.live_settings import AT_START, SettingsHost, Shown

_HINT = "Enter changes · Esc closes · dimmed: at the next start"


class SettingsScreen(ModalScreen[None]):
    """The settings table.

    Args:
        host: The chat whose settings change.
        start: The values of this start with their sources.
        config_file: Where a person keeps settings; None: not known.
    """

    CSS_PATH = "settings.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f2,alt+2", "back", "Close", show=False, priority=True),
    ]

    def __init__(
        self, host: SettingsHost, start: Settings, config_file: Path | None = None
    ) -> None:
        super().__init__()
        self._host = host
        self._start = start
        self._config_file = config_file
        self._shown: list[Shown] = []
        self._edited: Shown | None = None
        self._list = OptionList(id="settings-list", markup=False)
        self._about = Static(id="settings-about", markup=False)
        self._input = Input(id="settings-input", compact=True)

    def compose(self) -> ComposeResult:
        """List, what the chosen one means, and a line to type in."""
        with Vertical(id="settings-box"):
            yield Static(f"Settings · {_HINT}", id="settings-title", markup=False)
            yield self._list
            yield self._about
            yield self._input

    def on_mount(self) -> None:
        """Fill the list."""
        self._input.display = False
        self._fill(0)
        self._list.focus()

    def _fill(self, at: int) -> None:
        self._shown = live_settings.shown(self._host, self._start)
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
        where = f" into {self._config_file}" if self._config_file is not None else ""
        text = f"Changes hold for this run; to keep one, write `name = value`{where}."
        return Content.styled(text, "$secondary")

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        item = self._shown[event.option_index]
        if not item.is_live:
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
            said = live_settings.change(self._host, item.row, raw)
        except SettingsError as error:
            self._say(f"{error.message}. {error.hint}".strip())
            return
        self._close_input()
        self._fill(self._list.highlighted or 0)
        self._say(said)

    def _say(self, text: str) -> None:
        self.notify(text, timeout=3, markup=False)

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
    if not item.is_live:
        return Content.styled(f"{name}  {value:<24}  {item.source}", "$secondary")
    return Content.assemble((name, "bold"), f"  {value:<24}  {item.source}")
