"""A reply's tokens to channels: reasoning before `</think>`, answer after it."""

from __future__ import annotations

from ds4chat.protocol.types import Channel, Span, ThinkMode, Token
from ds4chat.text.detok import Detokenizer
from ds4chat.text.tokenizer import Tokenizer


class ChannelSplitter:
    """Turns the tokens of one reply into spans, each in its channel.

    Every token gives exactly one span. A think marker's span has no text; the `</think>` that
    ends the reasoning still counts there. Markers are known by id, so text that merely spells
    one stays text. The end token is not pushed.
    """

    def __init__(self, tokenizer: Tokenizer, think: ThinkMode) -> None:
        specials = tokenizer.specials
        thinks = think is not ThinkMode.OFF and specials.has_thinking
        self._detok = Detokenizer(tokenizer)
        self._close = specials.think_close
        self._markers = {specials.think_open, specials.think_close} - {None}
        self._channel = Channel.THINKING if thinks else Channel.ANSWER
        self._last: Token | None = None

    @property
    def channel(self) -> Channel:
        """Where the next token belongs."""
        return self._channel

    def push(self, token: Token) -> list[tuple[Channel, Span]]:
        """The span of one token.

        A marker's span holds U+FFFD where it cut a character short, else nothing.

        Raises:
            ModelFileError: the id is outside the vocabulary.
        """
        channel, text = self.advance(token.id)
        self._last = token
        return [(channel, Span(text=text, token=token))]

    def advance(self, token_id: int) -> tuple[Channel, str]:
        """The channel of a token and the text that it completed (`push` without provenance)."""
        channel = self._channel
        if token_id not in self._markers:
            return channel, self._detok.push(token_id)
        if token_id == self._close:
            self._channel = Channel.ANSWER
        return channel, self._detok.flush()

    def finish(self) -> list[tuple[Channel, Span]]:
        """End the reply. Nearly always nothing.

        If the last token left a character unfinished: one span with U+FFFD that names this
        token a second time. It adds text, not a token.
        """
        rest = self._detok.flush()
        if not rest or self._last is None:
            return []
        return [(self._channel, Span(text=rest, token=self._last))]

    def copy(self) -> ChannelSplitter:
        """An independent splitter in the same state, to look ahead."""
        twin = ChannelSplitter.__new__(ChannelSplitter)
        twin._detok = self._detok.copy()
        twin._close = self._close
        twin._markers = self._markers
        twin._channel = self._channel
        twin._last = self._last
        return twin
