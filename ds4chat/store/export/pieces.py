"""A turn as it is drawn: tokens in order, and after each round the drafts it rejected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ds4chat.protocol.events import RoundVerified, TokensCommitted
from ds4chat.protocol.types import Channel, Span, Token
from ds4chat.store.clean import clean, clean_line
from ds4chat.store.graphemes import graphemes
from ds4chat.store.tree import Tree, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text of one token, harmless; `token` is None for a ghost (a rejected draft)."""

    text: str
    token: Token | None
    note: str


def pieces(turn: Turn, channel: Channel) -> list[Piece]:
    """The pieces of one channel. Without ghosts their texts are the channel's text, cleaned.

    A character that several tokens make is whole in the last one's piece.
    """
    rounds = {e.round: e for e in turn.events if isinstance(e, RoundVerified)}
    spans = list(_spans(turn))
    found: list[Piece] = []
    for place, (where, span) in enumerate(spans):
        in_round = span.token.round
        is_last = place + 1 == len(spans) or spans[place + 1][1].token.round != in_round
        if where is channel:
            found.append(Piece(text=clean(span.text), token=span.token, note=_note(span.token)))
            if is_last and in_round in rounds:
                found += _ghosts(rounds[in_round])
    if not spans:
        whole = turn.answer_text if channel is Channel.ANSWER else turn.reasoning_text
        found += [Piece(text=clean(whole), token=None, note="")] if whole else []
    return _with_whole_characters(found)


def _with_whole_characters(found: list[Piece]) -> list[Piece]:
    """Move the borders that stand inside a character before it."""
    text = "".join(piece.text for piece in found if piece.token is not None)
    if text.isascii():
        return found
    inside: dict[int, int] = {}  # place in a character, where that begins
    at = 0
    for line in text.split("\n"):
        for start, end, _ in graphemes(line):
            inside.update(dict.fromkeys(range(at + start + 1, at + end), at + start))
        at += len(line) + 1
    whole, start, at = [], 0, 0
    for piece in found:
        if piece.token is not None:
            at += len(piece.text)
            end = inside.get(at, at)
            whole.append(replace(piece, text=text[start:end]))
            start = end
        else:
            whole.append(piece)
    return whole


def _spans(turn: Turn) -> Iterator[tuple[Channel, Span]]:
    for event in turn.events:
        if isinstance(event, TokensCommitted):
            for span in event.spans:
                yield event.channel, span


def _note(token: Token) -> str:
    parts = [str(token.source), f"token {token.id}"]
    if token.round:
        parts.append(f"round {token.round}, position {token.position}")
    if token.confidence is not None:
        parts.append(f"confidence {token.confidence:.2f}")
    return ", ".join([*parts, f"margin {token.margin:.2f}"])


def _ghosts(event: RoundVerified) -> list[Piece]:
    rejected = zip(event.proposal_texts, event.confidences, strict=False)
    return [
        Piece(
            text=clean(text).replace("\n", "⏎") or "·",
            token=None,
            note=f"rejected draft of round {event.round}, confidence {confidence:.2f}",
        )
        for text, confidence in list(rejected)[event.n_accepted :]
    ]


def model_line(tree: Tree) -> str:
    """The model and where it ran, on one line; empty when it is not known."""
    model = tree.options.model if tree.options is not None else None
    if model is None:
        return ""
    words = (model.name, model.quant, model.support_name, model.backend, model.device)
    return clean_line(" · ".join(word for word in words if word), 200)


def receipt(turn: Turn) -> str:
    """The figures of a reply on one line; empty for a reply that never ended."""
    usage = turn.usage
    if usage is None:
        return "broken off" if turn.has_reply else ""
    parts = [f"{usage.n_tokens} tok"]
    if usage.decode_s > 0:
        parts.append(f"{usage.n_tokens / usage.decode_s:.1f} tok/s")
    if usage.accept_len is not None:
        parts.append(f"accept {usage.accept_len:.1f}")
    if usage.saved_s is not None and usage.n_rounds:
        word = "saved" if usage.saved_s >= 0 else "lost"
        parts.append(f"{word} {abs(usage.saved_s):.1f} s")
    if turn.reason is not None and turn.reason != "stop":
        parts.append(str(turn.reason))
    return " · ".join(parts)
