"""A saved conversation back on the screen, with the provenance of every token."""

from __future__ import annotations

from collections.abc import Sequence

from ds4chat.protocol.events import Notice, RoundVerified, TokensCommitted
from ds4chat.protocol.types import Channel, FinishReason, ModelInfo, Source, Span, Token
from ds4chat.store import tree as kept
from ds4chat.tui import receipt
from ds4chat.tui.state import Conversation, Turn
from ds4chat.tui.view import TranscriptView

_LOST = "(this message was lost)"


def show(tree: kept.Tree, conversation: Conversation, transcript: TranscriptView) -> None:
    """Put the current branch into the conversation and on the screen."""
    leaf = tree.leaf
    path = tree.path_to(leaf.id) if leaf is not None else []
    conversation.turns[:] = [_as_turn(turn) for turn in path]
    conversation.system = tree.system
    conversation.n_dropped = conversation.n_dropped_held = len(path) - len(tree.path())
    for sent in conversation.turns[conversation.n_dropped :]:
        sent.n_dropped = conversation.n_dropped
    conversation.n_turns_ever = tree.next_turn_id - 1
    transcript.clear()
    for place, turn in enumerate(path, start=1):
        _draw(turn, transcript)
        if place == conversation.n_dropped:
            transcript.add_notice("The turns above are not sent any more (/compact).", "info")


def fit_ids(tree: kept.Tree, turns: Sequence[Turn], info: ModelInfo) -> list[str]:
    """Give each reply its token ids back, but for those that another model made.

    Ids of another vocabulary would be other words: such a reply is sent as text.

    Returns:
        Names of the other models.
    """
    others: dict[str, None] = {}
    for turn in turns:
        origin = tree.turns.get(turn.turn_id)
        if origin is None or turn.reason is None:
            continue
        model = origin.options.model if origin.options is not None else None
        fits = model is not None and _is_same_model(model, info)
        turn.ids = list(origin.ids) if fits else []
        if not fits and origin.ids:
            others[model.name if model is not None else "an unknown model"] = None
    return list(others)


def _is_same_model(model: ModelInfo, other: ModelInfo) -> bool:
    if model.fingerprint and other.fingerprint:
        return model.fingerprint == other.fingerprint
    return (model.name, model.n_vocab) == (other.name, other.n_vocab)


def _as_turn(turn: kept.Turn) -> Turn:
    return Turn(
        turn_id=turn.id,
        question=turn.question,
        think=turn.think,
        answer=list(turn.answer),
        reasoning=list(turn.reasoning),
        ids=list(turn.ids),
        reason=turn.reason or FinishReason.STOP,
        usage=turn.usage,
        rounds={e.round: e for e in turn.events if isinstance(e, RoundVerified)},
    )


def _draw(turn: kept.Turn, transcript: TranscriptView) -> None:
    transcript.add_user(_LOST if turn.is_lost else turn.question, turn.id)
    transcript.begin_reply(turn.id)
    notices: list[Notice] = []
    has_spans = False
    for event in turn.events:
        if isinstance(event, TokensCommitted):
            has_spans = True
            transcript.append(turn.id, event.channel, event.spans, event.at_s)
        elif isinstance(event, Notice):
            notices.append(event)
    if not has_spans:
        _draw_plain(turn, transcript)
    transcript.finish_reply(turn.id, _receipt(turn))
    for notice in notices:
        transcript.add_notice(notice.message, notice.level)
    if turn.damage:
        transcript.add_notice(f"This turn is damaged: {turn.damage}.", "error")


def _draw_plain(turn: kept.Turn, transcript: TranscriptView) -> None:
    """A reply that came without provenance."""
    for channel, text in (
        (Channel.THINKING, turn.reasoning_text),
        (Channel.ANSWER, turn.answer_text),
    ):
        if text:
            token = Token(
                id=-1, source=Source.FORCED, round=0, position=0, confidence=None, margin=0.0
            )
            transcript.append(turn.id, channel, (Span(text=text, token=token),))


def _receipt(turn: kept.Turn) -> str:
    if turn.finished is None:
        return ""
    if turn.finished.reason is FinishReason.ERROR:
        return f"broken off · {len(turn.ids)} tok kept"
    return receipt.receipt(turn.finished.usage, turn.finished.reason)
