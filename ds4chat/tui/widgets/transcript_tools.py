"""What a reader can do with a transcript: find text, go over turns, ask about a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.message import Message

from ds4chat.protocol.types import Channel, Source
from ds4chat.store.graphemes import graphemes
from ds4chat.tui.markdown.block import NO_TOKEN
from ds4chat.tui.markdown.reply import NO_CONFIDENCE, SOURCES
from ds4chat.tui.rounds import TokenFacts
from ds4chat.tui.widgets.transcript_rows import GUTTER, Place
from ds4chat.tui.widgets.transcript_search import SearchTools


class TokenPlace(NamedTuple):
    """A token of a transcript."""

    turn_id: int
    channel: Channel
    token: int


class TranscriptTools(SearchTools):
    """The reading half of the transcript; the other half fills it."""

    _ghosts: tuple[int, Mapping[int, str]] | None = None

    class TokenClicked(Message):
        """The person clicked on a token of a reply."""

        def __init__(self, place: TokenPlace) -> None:
            super().__init__()
            self.place = place

    # Turns

    @property
    def marked_turn(self) -> int | None:
        """The turn that is marked."""
        return self._marked

    def mark_turn(self, turn_id: int | None) -> None:
        """Draw a bar beside one turn and bring it into view; None: beside none."""
        self._marked = turn_id if turn_id in self._user_rows else None
        self._place_mark()
        self._painter.forget(0)
        if self._marked is not None:
            top = self._column.top_of(self._user_rows[self._marked])
            self.show_line(top if top is not None else 0)
        self.refresh()

    # Tokens

    def on_click(self, event: events.Click) -> None:
        """Say which token was clicked, unless the click ends a selection."""
        offset = event.get_content_offset(self)
        if offset is None or event.chain != 1 or self.text_selection is not None:
            return
        place = self.token_at(offset.x, offset.y)
        if place is not None:
            self.post_message(self.TokenClicked(place))

    def token_at(self, x: int, y: int) -> TokenPlace | None:
        """The token drawn at a cell of the view; None where there is none."""
        place = self._column.place(y + self.scroll_offset.y)
        offset = _offset_at(place, x) if place is not None else None
        if place is None or offset is None or place.row.reply is None:
            return None
        index = next(place.row.block.pieces(offset, offset + 1)).token
        if index == NO_TOKEN or index >= len(place.row.reply.log):
            return None
        for (turn_id, channel), view in self._views.items():
            if view.reply is place.row.reply:
                return TokenPlace(turn_id, channel, index)
        return None

    def token_places(self, turn_id: int) -> list[TokenPlace]:
        """All tokens of a turn in order."""
        return [
            TokenPlace(turn_id, channel, token)
            for (owner, channel), view in self._views.items()
            if owner == turn_id
            for token in range(len(view.reply.log))
        ]

    def token_facts(self, place: TokenPlace) -> TokenFacts:
        """What is known of a token.

        Raises:
            KeyError: the turn is not here any more.
        """
        reply = self._views[place.turn_id, place.channel].reply
        log, index = reply.log, place.token
        start = log.ends[index - 1] if index else 0
        level = log.confidences[index]
        source = SOURCES[log.sources[index]]
        number = log.rounds[index] if source is Source.ACCEPTED else 0
        if source in (Source.FALLBACK, Source.BONUS):
            number = self._round_before(place)  # its last row chose this token
        return TokenFacts(
            text=reply.text[start : log.ends[index]],
            id=log.ids[index],
            source=source,
            round=number,
            position=log.positions[index],
            confidence=None if level == NO_CONFIDENCE else level / 254,
            margin=log.margins[index],
            at_s=log.times[index],
        )

    def _round_before(self, place: TokenPlace) -> int:
        """The round of the token before; 0 at the start of a reply."""
        view = self._views[place.turn_id, place.channel]
        if place.token:
            return view.reply.log.rounds[place.token - 1]
        thought = self._views.get((place.turn_id, Channel.THINKING))
        if thought is None or thought is view or not len(thought.reply.log):
            return 0
        return thought.reply.log.rounds[-1]

    def text_after_round(self, turn_id: int, number: int) -> str | None:
        """Text of the target's own token behind a round; None if the reply ended there."""
        for channel in (Channel.THINKING, Channel.ANSWER):
            view = self._views.get((turn_id, channel))
            log = view.reply.log if view is not None else None
            if view is None or log is None or number not in log.rounds:
                continue
            last = len(log.rounds) - 1 - log.rounds[::-1].index(number)
            if last + 1 < len(log):
                return view.reply.text[log.ends[last] : log.ends[last + 1]]
        return None

    # Ghosts

    def set_ghosts(self, turn_id: int, rejected: Mapping[int, str] | None) -> None:
        """Show the rejected drafts of one turn only (text by round); None: of none.

        While its reply runs, `rejected` may grow.
        """
        self._ghosts = (turn_id, rejected) if rejected is not None else None
        changed = []
        for (owner, _), view in self._views.items():
            texts = rejected if owner == turn_id else None
            if texts is not None or view.is_haunted:
                view.haunt(texts)
                changed.append(view)
        self._reshow(changed)

    def has_ghosts(self, turn_id: int) -> bool:
        """Whether the rejected drafts of a turn are shown."""
        return self._ghosts is not None and self._ghosts[0] == turn_id


def _offset_at(place: Place, x: int) -> int | None:
    """The display offset drawn at a cell of a line; None beside the text."""
    x -= GUTTER
    for item in place.row.lines[place.line] if x >= 0 else ():
        if isinstance(item, str):
            x -= cell_len(item)
            if x < 0:
                return None
            continue
        for start, _, cells in graphemes(place.row.block.text[item[0] : item[1]]):
            x -= cells
            if x < 0:
                return item[0] + start
    return None
