"""A token of a reply and the round it came from: drafts, confidences, outcome, times."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4chat.protocol.types import Source
from ds4chat.tui.palette import ATTRIBUTES, Attribute
from ds4chat.tui.rounds import Line, round_lines, token_lines
from ds4chat.tui.state import Turn
from ds4chat.tui.widgets.transcript import Transcript
from ds4chat.tui.widgets.transcript_tools import TokenPlace

_FOOTER = "Left, Right: tokens · Up, Down: rounds · Esc closes"


class RoundScreen(ModalScreen[None]):
    """Walks over the tokens of one turn.

    Args:
        transcript: Knows the tokens.
        turn: Knows the rounds.
        place: Where to begin.
    """

    CSS_PATH = "round.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close", show=False),
        Binding("left", "token(-1)", "Token before", show=False),
        Binding("right", "token(1)", "Next token", show=False),
        Binding("up", "round(-1)", "Round before", show=False),
        Binding("down", "round(1)", "Next round", show=False),
    ]

    def __init__(self, transcript: Transcript, turn: Turn, place: TokenPlace) -> None:
        super().__init__()
        self._transcript = transcript
        self._turn = turn
        self._place = place
        self._body = Static(id="round-box", markup=False)

    def compose(self) -> ComposeResult:
        """One box."""
        yield self._body

    def on_mount(self) -> None:
        """Show the first token."""
        self._show()

    def action_token(self, step: int) -> None:
        """Go to a neighbouring token."""
        places = self._transcript.token_places(self._turn.turn_id)
        at = places.index(self._place) + step
        if 0 <= at < len(places):
            self._place = places[at]
            self._show()

    def action_round(self, step: int) -> None:
        """Go to the first token of a neighbouring round."""
        places = self._transcript.token_places(self._turn.turn_id)
        start = self._round()
        at = places.index(self._place)
        while 0 <= at + step < len(places) and self._round() in (start, 0):
            at += step
            self._place = places[at]
        self._show()

    def _round(self) -> int:
        return self._transcript.token_facts(self._place).round

    def _show(self) -> None:
        facts = self._transcript.token_facts(self._place)
        lines = [*token_lines(facts), Line("")]
        event = self._turn.rounds.get(facts.round)
        if event is not None:
            chosen = self._transcript.text_after_round(self._turn.turn_id, facts.round)
            lines += round_lines(event, chosen)
        else:
            lines.append(Line("no round: this token was not drafted"))
        lines += [Line(""), Line(_FOOTER, "muted")]
        self._body.update(Content("\n").join(_drawn(line) for line in lines))


def _drawn(line: Line) -> Content:
    if line.kind == "muted":
        return Content.styled(line.text, "$secondary")
    if line.kind == "ghost":
        return Content.styled(line.text, "$secondary")
    if line.kind in tuple(Source):
        attribute = ATTRIBUTES[Source(line.kind)]
        style = "" if attribute is Attribute.NONE else f"{attribute} "
        return Content.styled(line.text, f"{style}$source-{line.kind}")
    return Content(line.text)
