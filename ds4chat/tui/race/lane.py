"""The record of one lane: its tokens, each with the time on the lane's own engine clock."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from ds4chat.protocol.events import (
    Event,
    PlainStep,
    PolicyChanged,
    PrefillProgress,
    RoundVerified,
    StatsSnapshot,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import Channel, FinishReason, SpecState, Token, Usage
from ds4chat.tui.figures import Counts
from ds4chat.tui.race.ask import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A token in its lane. `at_s`: the lane's engine seconds of decoding when it was there."""

    token: Token
    text: str
    at_s: float


@dataclass(slots=True, kw_only=True)
class Lane:
    """What one lane did so far. `clock_s` counts decoding only: both lanes read one prompt."""

    side: Side
    turn_id: int
    tokens: list[Placed] = field(default_factory=list)
    texts: dict[Channel, str] = field(default_factory=lambda: dict.fromkeys(Channel, ""))
    clock_s: float = 0.0
    counts: Counts = field(default_factory=Counts)
    last: RoundVerified | None = None
    n_plain_steps: int = 0
    state: SpecState = SpecState.ON
    why: str = ""
    n_prompt: int = 0
    prefill: PrefillProgress | None = None
    end: TurnFinished | None = None

    def take(self, event: Event) -> None:
        """Take in an event of this lane's turn."""
        match event:
            case TokensCommitted():
                self._add(event)
            case RoundVerified():
                self.last = event
                self.counts.add_round(event.n_accepted, len(event.proposal_ids))
            case PlainStep():
                self.n_plain_steps += 1
            case PolicyChanged():
                self.state, self.why = event.state, event.reason
            case TurnFinished():
                self._finish(event)
            case _:
                self._take_figures(event)

    def _take_figures(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self.n_prompt = event.n_prompt
            case PrefillProgress():
                self.prefill = event
            case StatsSnapshot():
                self.clock_s = max(self.clock_s, event.usage.decode_s)
            case _:
                pass  # notices are the screen's

    def _add(self, event: TokensCommitted) -> None:
        self.clock_s = max(self.clock_s, event.at_s)
        for span in event.spans:
            self.tokens.append(Placed(token=span.token, text=span.text, at_s=event.at_s))
            self.texts[event.channel] += span.text

    def _finish(self, event: TurnFinished) -> None:
        self.end = event
        if event.usage.decode_s > 0:
            self.clock_s = event.usage.decode_s

    @property
    def usage(self) -> Usage | None:
        """The engine's own account, once the lane has ended."""
        return self.end.usage if self.end is not None else None

    @property
    def n_tokens(self) -> int:
        """Tokens so far; the engine's own count at the end."""
        return len(self.end.ids) if self.end is not None else len(self.tokens)

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids so far."""
        if self.end is not None:
            return self.end.ids
        return tuple(placed.token.id for placed in self.tokens)

    @property
    def tps(self) -> float | None:
        """Tokens a second of the lane's own engine time; None before the first."""
        return self.n_tokens / self.clock_s if self.clock_s > 0 and self.n_tokens else None

    @property
    def accept_len(self) -> float | None:
        """Mean of accepted + 1 over rounds; None without any."""
        if self.usage is not None:
            return self.usage.accept_len
        counts = self.counts
        return counts.sum_accept_len / counts.n_rounds if counts.n_rounds else None

    @property
    def text(self) -> str:
        """Reasoning and answer as one text."""
        return self.texts[Channel.THINKING] + self.texts[Channel.ANSWER]

    @property
    def text_sha256(self) -> str:
        """SHA-256 (hex) of reasoning and answer in UTF-8."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    @property
    def is_complete(self) -> bool:
        """Whether it ended by itself: at an end token, its limit, or a full context."""
        natural = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTEXT_FULL)
        return self.end is not None and self.end.reason in natural
