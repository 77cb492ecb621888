"""Stop texts: where a reply ends because its answer contains a given text.

Stops are texts, not tokens: one may begin in one token and end in another, or in a later round.
So `StopGate` holds spans back while they could still turn out to begin a stop text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Channel, Span
from ds4chat.text.parse import ChannelSplitter

MAX_STOP_CHARS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHit:
    """A completed stop text.

    `index` counts the pushed tokens from 0: the one that completed the stop. `cut` is the
    length, in characters of all pushed text, of what stands before the stop text.
    """

    index: int
    cut: int
    stop: str


class StopMatcher:
    """Finds the first stop text in a text that arrives token by token.

    As if read character by character: the stop that is complete first wins; of several complete
    at the same character, the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Look for these texts of 1..`MAX_STOP_CHARS` characters; without any, never hit.

        Raises:
            SettingsError: a stop text is empty or too long.
        """
        for stop in stops:
            if not 0 < len(stop) <= MAX_STOP_CHARS:
                raise SettingsError(
                    f"a stop text has {len(stop)} characters; wanted: 1..{MAX_STOP_CHARS}",
                    "leave it out, or use a shorter one",
                )
        self._stops = tuple(stops)
        self._keep = max(map(len, stops), default=1) - 1
        self._tail = ""
        self._n_chars = 0
        self._n_tokens = 0
        self._hit: StopHit | None = None

    @property
    def hit(self) -> StopHit | None:
        """The stop that was found, if any."""
        return self._hit

    @property
    def n_chars(self) -> int:
        """Characters pushed so far."""
        return self._n_chars

    @property
    def n_held(self) -> int:
        """How many of the last characters could still begin a stop text."""
        for size in range(len(self._tail), 0, -1):
            end = self._tail[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0

    def push(self, text: str) -> StopHit | None:
        """Read the text of the next token; the hit if a stop is complete (then and after)."""
        if self._hit is None:
            window = self._tail + text
            found = self._first_in(window, len(self._tail))
            if found is not None:
                start, stop = found
                cut = self._n_chars - len(self._tail) + start
                self._hit = StopHit(index=self._n_tokens, cut=cut, stop=stop)
            self._tail = window[-self._keep :] if self._keep else ""
        self._n_chars += len(text)
        self._n_tokens += 1
        return self._hit

    def skip(self) -> None:
        """Count a token whose text stops do not apply to."""
        self._n_tokens += 1

    def _first_in(self, window: str, n_old: int) -> tuple[int, str] | None:
        """`(start, stop)` of the first stop that ends beyond the first `n_old` characters."""
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = window.find(stop, max(0, n_old - len(stop) + 1))
            if start >= 0:
                candidate = (start + len(stop), start, stop)
                best = candidate if best is None else min(best, candidate)
        return None if best is None else best[1:]

    def copy(self) -> StopMatcher:
        """An independent matcher in the same state, to look ahead."""
        twin = StopMatcher(())
        twin._stops, twin._keep, twin._tail = self._stops, self._keep, self._tail
        twin._n_chars, twin._n_tokens, twin._hit = self._n_chars, self._n_tokens, self._hit
        return twin


class StopGate:
    """Lets spans through that no stop text can touch any more; cuts at the stop.

    Reasoning passes untouched: stop texts apply to the answer.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._matcher = StopMatcher(stops)
        self._held: list[Span] = []
        self._n_out = 0  # answer characters let through

    @property
    def hit(self) -> StopHit | None:
        """The stop that was found, if any. `index` counts tokens of both channels."""
        return self._matcher.hit

    def push(self, spans: Iterable[tuple[Channel, Span]]) -> list[tuple[Channel, Span]]:
        """Read spans in order; those that may be shown now, in order.

        After a hit the span that held the stop's beginning is shortened and later ones are
        empty: each token keeps its span.
        """
        out: list[tuple[Channel, Span]] = []
        for channel, span in spans:
            if channel is Channel.ANSWER:
                self._matcher.push(span.text)
                self._held.append(span)
                out += self._release()
            else:
                self._matcher.skip()
                out.append((channel, span))
        return out

    def finish(self) -> list[tuple[Channel, Span]]:
        """End the reply: what was held back and turned out to be no stop text."""
        return self._release(is_final=True)

    def _release(self, *, is_final: bool = False) -> list[tuple[Channel, Span]]:
        hit = self._matcher.hit
        if hit is not None:
            limit = hit.cut
        else:
            limit = self._matcher.n_chars - (0 if is_final else self._matcher.n_held)
        out: list[tuple[Channel, Span]] = []
        while self._held:
            span = self._held[0]
            text = span.text
            if self._n_out + len(text) > limit:
                if hit is None:
                    break
                text = text[: max(0, limit - self._n_out)]
            self._held.pop(0)
            self._n_out += len(text)
            out.append((Channel.ANSWER, Span(text=text, token=span.token)))
        return out

    def n_until_stop(self, splitter: ChannelSplitter, ids: Sequence[int]) -> int | None:
        """How many of `ids`, pushed next, a stop text needs to be complete; None: no stop.

        Looks ahead only: neither this gate nor `splitter` changes. For the commit filter of a
        speculative round.
        """
        ahead, matcher = splitter.copy(), self._matcher.copy()
        for count, token_id in enumerate(ids, start=1):
            channel, text = ahead.advance(token_id)
            if channel is Channel.ANSWER and matcher.push(text) is not None:
                return count
        return None
