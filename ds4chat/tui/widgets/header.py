"""The top line: what runs, how, and how fast."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from ds4chat.protocol.types import SpecState
from ds4chat.tui import units
from ds4chat.tui.controller import ChatController
from ds4chat.tui.markdown.clean import clean_line

MAX_NAME = 40

_STATES = {
    SpecState.ON: "speculative",
    SpecState.OFF: "plain",
    SpecState.PARKED: "parked",
    SpecState.UNAVAILABLE: "plain",
}


def parts(chat: ChatController) -> list[tuple[int, str]]:
    """The left side as (importance, text), in order; 0 is dropped last."""
    info = chat.info
    if info is None:
        return [(0, str(chat.phase))]
    name = clean_line(f"{info.name} {info.quant}" if info.quant != "none" else info.name)
    found = [(1, name[:MAX_NAME])]
    if info.block_size:
        found.append((5, f"DSpark {info.block_size}"))
    found.append((2, _STATES[chat.figures.state]))
    found.append((4, f"temp {chat.sampling.temperature:g}"))
    if str(chat.think) != "off":
        found.append((6, f"think {chat.think}"))
    found.append((3, f"ctx {units.tokens(chat.n_context)}/{units.tokens(info.ctx)}"))
    if chat.keeper.is_read_only:
        found.append((0, "read-only"))
    if chat.keeper.is_unsaved:
        found.append((0, "not saved"))
    if chat.can_restart:
        found.append((0, str(chat.phase)))
    return found


def fit(chat: ChatController, width: int) -> tuple[str, str]:
    """Left and right text for a width; the least important parts go first."""
    right = f"{chat.tps:.1f} tok/s" if chat.tps is not None else ""
    left = parts(chat)
    while len(left) > 1 and len(_join(left)) + len(right) + 13 > width:
        left.remove(max(left))
    return _join(left), right


def _join(found: list[tuple[int, str]]) -> str:
    return " · ".join(text for _, text in found)


class HeaderLine(Widget):
    """One line that fits itself to the width."""

    DEFAULT_CSS = """
    HeaderLine { height: 1; background: $panel; color: $foreground; }
    """

    def __init__(self, chat: ChatController) -> None:
        super().__init__(id="header")
        self._chat = chat
        self._shown: tuple[str, str] | None = None

    def show(self) -> None:
        """Redraw if anything changed: a frame costs every widget that is drawn."""
        if fit(self._chat, self.size.width) != self._shown:
            self.refresh()

    def render(self) -> Content:
        """The line."""
        left, right = self._shown = fit(self._chat, self.size.width)
        gap = max(1, self.size.width - len(left) - len(right) - 11)
        return Content.assemble(
            (" ds4chat  ", "bold $primary"), left, " " * gap, (right, "bold")
        )
