from __future__ import annotations

import pytest

from ds4chat.errors import SettingsError
from ds4chat.protocol.types import Channel, Span, ThinkMode
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.stops import MAX_STOP_CHARS, StopGate, StopHit, StopMatcher
from tests.unit.text import vocab
from tests.unit.text.test_parse import close, letters, token

T, A = Channel.THINKING, Channel.ANSWER


def hit(stops: list[str], texts: list[str]) -> tuple[int, int, str] | None:
    matcher = StopMatcher(stops)
    for text in texts:
        matcher.push(text)
    found = matcher.hit
    return None if found is None else (found.index, found.cut, found.stop)


@pytest.mark.parametrize(
    ("stops", "texts", "wanted"),
    [
        ([], ["anything"], None),
        (["END"], ["the E", "N", "d"], None),
        (["END"], ["the END is"], (0, 4, "END")),
        (["END"], ["the E", "", "N", "D is"], (3, 4, "END")),
        (["aab"], ["a", "a", "a", "b"], (3, 1, "aab")),
        (["\n\n"], ["x\n", "y\n\n\n"], (1, 3, "\n\n")),
        (["abc", "b"], ["abc"], (0, 1, "b")),
        (["xbc", "abc", "bc"], ["abc"], (0, 0, "abc")),
        (["c", "ab"], ["a", "bc"], (1, 0, "ab")),
        (["aa"], ["a", "b", "a", "a"], (3, 2, "aa")),
        (["x"], ["x", "x"], (0, 0, "x")),
        (["long stop", "s"], ["long ", "stop"], (1, 5, "s")),
        (["😀"], ["a", "😀"], (1, 1, "😀")),
    ],
)
def test_first_stop(
    stops: list[str], texts: list[str], wanted: tuple[int, int, str] | None
) -> None:
    assert hit(stops, texts) == wanted


def test_push_answers_with_the_hit() -> None:
    matcher = StopMatcher(["bc"])
    wanted = StopHit(index=1, cut=1, stop="bc")
    assert [matcher.push("ab"), matcher.push("c"), matcher.push("bc")] == [None, wanted, wanted]


@pytest.mark.parametrize(
    ("text", "n_held"), [("", 0), ("x", 0), ("xE", 1), ("xEN", 2), ("xENx", 0), ("ENE", 1)]
)
def test_what_could_begin_a_stop_is_held(text: str, n_held: int) -> None:
    matcher = StopMatcher(["END", "q"])
    matcher.push(text)
    assert matcher.n_held == n_held


@pytest.mark.parametrize("stop", ["", "x" * (MAX_STOP_CHARS + 1)])
def test_unusable_stops_are_refused(stop: str) -> None:
    with pytest.raises(SettingsError, match="stop text"):
        StopMatcher(["ok", stop])


def span(text: str) -> Span:
    return Span(text=text, token=token(0))


def gate(stops: list[str], *pushes: list[tuple[Channel, str]]) -> list[list[str]]:
    """The texts let through by each push, then by the end."""
    made = StopGate(stops)
    outs = [made.push([(channel, span(text)) for channel, text in push]) for push in pushes]
    return [[found.text for _, found in out] for out in [*outs, made.finish()]]


def test_the_gate_holds_what_could_begin_a_stop() -> None:
    assert gate(["END"], [(A, "a")], [(A, "bE")], [(A, "N")], [(A, "x")]) == [
        ["a"], [], [], ["bE", "N", "x"], [],
    ]  # fmt: skip


def test_the_gate_cuts_at_the_stop_and_keeps_every_token() -> None:
    assert gate(["END"], [(A, "a")], [(A, "bE")], [(A, "N")], [(A, "Dx"), (A, "y")]) == [
        ["a"], [], [], ["b", "", "", ""], [],
    ]  # fmt: skip


def test_the_gate_ends_with_what_was_no_stop() -> None:
    assert gate(["END"], [(A, "EN")]) == [[], ["EN"]]


def test_the_gate_without_stops_lets_all_through() -> None:
    assert gate([], [(T, "r"), (A, "a")], [(A, "")]) == [["r", "a"], [""], []]


def test_stops_do_not_apply_to_reasoning() -> None:
    made = StopGate(["END"])
    out = made.push([(T, span("END")), (T, span("E")), (A, span("ND")), (A, span("END"))])
    assert [(channel, found.text) for channel, found in out] == [
        (T, "END"), (T, "E"), (A, "ND"), (A, ""),
    ]  # fmt: skip
    assert made.hit == StopHit(index=3, cut=2, stop="END")


def test_look_ahead_counts_ids_and_changes_nothing() -> None:
    splitter = ChannelSplitter(vocab.tokenizer(), ThinkMode.LOW)
    made = StopGate(["END"])
    made.push(splitter.push(token(letters("E")[0])))
    ids = [*letters("ND"), close(), *letters("xEND!")]
    for _ in range(2):
        assert made.n_until_stop(splitter, ids) == 7
        assert made.n_until_stop(splitter, ids[:6]) is None
    assert splitter.channel is T
    assert made.hit is None


def test_look_ahead_sees_a_stop_that_an_earlier_round_began() -> None:
    splitter = ChannelSplitter(vocab.tokenizer(), ThinkMode.OFF)
    made = StopGate(["END"])
    for i in letters("aEN"):
        made.push(splitter.push(token(i)))
    assert made.n_until_stop(splitter, letters("Dxy")) == 1
    assert made.n_until_stop(splitter, letters("xyD")) is None
