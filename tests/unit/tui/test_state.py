from __future__ import annotations

import pytest

from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Message,
    Role,
    Source,
    Span,
    ThinkMode,
    Token,
    Usage,
)
from ds4chat.tui.state import Conversation


def span(text: str, token_id: int) -> Span:
    token = Token(
        id=token_id, source=Source.PLAIN, round=0, position=0, confidence=None, margin=1.0
    )
    return Span(text=text, token=token)


def test_a_partial_reply_is_sent_with_its_ids_and_opener() -> None:
    chat = Conversation(system="Be kind.")
    turn = chat.ask("one", ThinkMode.HIGH)
    assert chat.add_spans(turn.turn_id, Channel.THINKING, [span("hm", 5), span("", 6)])
    assert chat.add_spans(turn.turn_id, Channel.ANSWER, [span("yes", 7)])
    assert chat.break_off() is turn
    chat.ask("two", ThinkMode.OFF)
    assert chat.messages() == (
        Message(role=Role.SYSTEM, text="Be kind."),
        Message(role=Role.USER, text="one"),
        Message(
            role=Role.ASSISTANT,
            text="yes",
            reasoning="hm",
            ids=(5, 6, 7),
            think=ThinkMode.HIGH,
        ),
        Message(role=Role.USER, text="two"),
    )


def test_the_engines_ids_are_the_last_word() -> None:
    chat = Conversation()
    turn = chat.ask("one", ThinkMode.OFF)
    chat.add_spans(turn.turn_id, Channel.ANSWER, [span("a", 1), span("b", 2)])
    chat.finish(turn.turn_id, FinishReason.STOP, Usage(), (1,))
    assert turn.ids == [1]
    other = chat.ask("two", ThinkMode.OFF)
    chat.add_spans(other.turn_id, Channel.ANSWER, [span("c", 3)])
    chat.finish(other.turn_id, FinishReason.ERROR, Usage(), ())
    assert other.ids == [3]


def test_events_of_another_turn_change_nothing() -> None:
    chat = Conversation()
    first = chat.ask("one", ThinkMode.OFF)
    chat.break_off()
    assert not chat.add_spans(first.turn_id, Channel.ANSWER, [span("late", 1)])
    assert chat.finish(first.turn_id, FinishReason.STOP, Usage(), (1,)) is None
    second = chat.ask("two", ThinkMode.OFF)
    assert not chat.add_spans(first.turn_id, Channel.ANSWER, [span("late", 1)])
    assert (first.ids, second.ids) == ([], [])
    assert first.reason is FinishReason.ERROR


def test_only_one_reply_at_a_time() -> None:
    chat = Conversation()
    chat.ask("one", ThinkMode.OFF)
    with pytest.raises(ValueError, match="running"):
        chat.ask("two", ThinkMode.OFF)


def test_a_question_without_reply_stays_a_message() -> None:
    chat = Conversation()
    chat.ask("one", ThinkMode.OFF)
    chat.break_off()
    chat.ask("two", ThinkMode.OFF)
    assert [m.text for m in chat.messages()] == ["one", "two"]


def test_turn_ids_are_never_used_twice_in_a_conversation() -> None:
    chat = Conversation()
    ids = []
    for _ in range(3):
        ids.append(chat.ask("x", ThinkMode.OFF).turn_id)
        chat.break_off()
        chat.take_back()
    assert ids == [1, 2, 3]
    chat.clear()
    assert chat.ask("x", ThinkMode.OFF).turn_id == 1


def test_take_back_of_nothing() -> None:
    assert Conversation().take_back() is None


@pytest.mark.parametrize("keeps_reasoning", [False, True])
def test_sizes_are_taken_from_how_the_context_grew(keeps_reasoning: bool) -> None:
    """A question of 300 tokens, taken for 100 by its letters, costs what it has cost."""
    chat = Conversation(keeps_reasoning=keeps_reasoning)
    n_held = 20  # the system text's
    for n_question in (30, 300):
        turn = chat.ask("q" * 300, ThinkMode.HIGH)
        usage = Usage(n_thinking=40, n_context=n_held + n_question + 50)
        chat.finish(turn.turn_id, FinishReason.STOP, usage, tuple(range(50)))
        n_held += n_question + (50 if keeps_reasoning else 10)
    cut = 0 if keeps_reasoning else 40
    assert chat.sizes() == [100 - cut, 350 - cut]
    n_context = chat.n_context
    chat.n_dropped = 1
    assert chat.n_context == n_context - (100 - cut)


def test_a_turn_behind_a_compaction_is_not_measured_by_the_one_before() -> None:
    chat = Conversation()
    for n_dropped, n_context in ((0, 500), (0, 1_000), (1, 620)):
        chat.n_dropped = n_dropped
        turn = chat.ask("abc", ThinkMode.OFF)
        usage = Usage(n_context=n_context)
        chat.finish(turn.turn_id, FinishReason.STOP, usage, tuple(range(90)))
    assert chat.sizes() == [95, 500, 95]
    assert chat.n_context == 620
    chat.n_dropped = 2
    assert chat.n_context == 120
