from __future__ import annotations

import pytest

from ds4chat.errors import ModelFileError
from ds4chat.protocol.types import Channel, Source, Span, ThinkMode, Token
from ds4chat.text.parse import ChannelSplitter
from tests.unit.text import vocab
from tests.unit.text.test_detok import byte_ids

T, A = Channel.THINKING, Channel.ANSWER


def token(token_id: int) -> Token:
    return Token(
        id=token_id, source=Source.PLAIN, round=0, position=0, confidence=None, margin=1.0
    )


def letters(text: str) -> list[int]:
    return byte_ids(text.encode())


def close() -> int:
    found = vocab.tokenizer().specials.think_close
    assert found is not None
    return found


def split(ids: list[int], think: ThinkMode) -> list[tuple[Channel, str]]:
    splitter = ChannelSplitter(vocab.tokenizer(), think)
    spans = [pair for i in ids for pair in splitter.push(token(i))]
    assert [span.token.id for _, span in spans] == ids
    return [(channel, span.text) for channel, span in [*spans, *splitter.finish()]]


def test_without_thinking_all_is_answer() -> None:
    assert split(letters("ab"), ThinkMode.OFF) == [(A, "a"), (A, "b")]


@pytest.mark.parametrize("think", [ThinkMode.LOW, ThinkMode.HIGH, ThinkMode.MAX])
def test_the_marker_ends_the_reasoning_and_is_not_shown(think: ThinkMode) -> None:
    ids = [*letters("r"), close(), *letters("a")]
    assert split(ids, think) == [(T, "r"), (T, ""), (A, "a")]


def test_reasoning_may_never_end() -> None:
    assert split(letters("r"), ThinkMode.LOW) == [(T, "r")]


def test_a_spelled_marker_is_text() -> None:
    found = split(letters("</think>"), ThinkMode.LOW)
    assert "".join(text for _, text in found) == "</think>"
    assert {channel for channel, _ in found} == {T}


def test_stray_markers_are_not_shown() -> None:
    opening = vocab.tokenizer().specials.think_open
    assert opening is not None
    ids = [*letters("a"), close(), opening, *letters("b")]
    assert split(ids, ThinkMode.OFF) == [(A, "a"), (A, ""), (A, ""), (A, "b")]
    assert split([opening, *letters("r")], ThinkMode.LOW) == [(T, ""), (T, "r")]


def test_a_character_belongs_to_the_token_that_completes_it() -> None:
    assert split(letters("é中"), ThinkMode.OFF) == [
        (A, ""),
        (A, "é"),
        (A, ""),
        (A, ""),
        (A, "中"),
    ]


def test_a_marker_cuts_an_unfinished_character() -> None:
    first = letters("é")[0]
    assert split([first, close(), *letters("a")], ThinkMode.LOW) == [
        (T, ""), (T, "\ufffd"), (A, "a"),
    ]  # fmt: skip


def test_finish_shows_an_unfinished_character_with_the_last_token() -> None:
    splitter = ChannelSplitter(vocab.tokenizer(), ThinkMode.OFF)
    last = token(letters("é")[0])
    splitter.push(last)
    assert splitter.finish() == [(A, Span(text="\ufffd", token=last))]
    assert splitter.finish() == []


def test_other_markers_are_shown_as_written() -> None:
    made = vocab.tokenizer()
    assert split([made.specials.user], ThinkMode.OFF) == [(A, vocab.USER)]


def test_a_model_without_think_markers_only_answers() -> None:
    splitter = ChannelSplitter(vocab.tokenizer(thinking=False), ThinkMode.HIGH)
    assert splitter.channel is A


def test_a_copy_goes_its_own_way() -> None:
    splitter = ChannelSplitter(vocab.tokenizer(), ThinkMode.LOW)
    first, second = letters("é")
    splitter.push(token(first))
    ahead = splitter.copy()
    assert ahead.advance(second) == (T, "é")
    assert ahead.advance(close()) == (T, "")
    assert ahead.channel is A
    assert splitter.channel is T
    assert splitter.push(token(second))[0][1].text == "é"


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(ModelFileError):
        ChannelSplitter(vocab.tokenizer(), ThinkMode.OFF).push(token(10**6))
