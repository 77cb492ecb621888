from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.drivers import linux_driver
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver

from ds4chat.tui.terminal_input import (
    PASTE_END,
    PASTE_START,
    ChatParser,
    InputFilter,
    guard,
)

HOSTILE = "one\r\x1b[31m\rtwo\r\x1b\r\x1bOP\x1b[A\rthree"


def parsed(*pieces: str) -> list[events.Event]:
    parser = ChatParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    return [event for event in found if isinstance(event, events.Event)]


def test_a_paste_with_escapes_is_one_paste_and_no_key() -> None:
    found = parsed(PASTE_START + HOSTILE + PASTE_END + "x")
    paste, key = found
    assert isinstance(paste, events.Paste)
    assert paste.text == HOSTILE.replace("\x1b", "␛")
    assert isinstance(key, events.Key)
    assert key.key == "x"


@given(cuts=st.lists(st.integers(1, 60), max_size=8))
def test_a_paste_is_the_same_however_it_arrives(cuts: list[int]) -> None:
    text = "ab" + PASTE_START + HOSTILE + "\x1b[20" + PASTE_END + "c" + PASTE_START + PASTE_END
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(places)]
    whole = InputFilter().feed(text)
    joined = InputFilter()
    assert "".join(joined.feed(piece) for piece in pieces) == whole
    assert whole.count("\x1b") == 4


def test_alt_enter_is_a_new_line_and_enter_stays() -> None:
    keys = [event.key for event in parsed("a\x1b\rb\r") if isinstance(event, events.Key)]
    assert keys == ["a", "ctrl+j", "b", "enter"]


@pytest.mark.parametrize(
    ("data", "key"), [("\x1b[A", "up"), ("\x1bOP", "f1"), ("\n", "ctrl+j")]
)
def test_other_keys_pass(data: str, key: str) -> None:
    assert [event.key for event in parsed(data) if isinstance(event, events.Key)] == [key]


def test_guard_replaces_the_parser_of_a_driver_that_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linux_driver, "XTermParser", ChatParser.__base__)
    guard(HeadlessDriver)
    guard(LinuxDriver)
    assert vars(linux_driver)["XTermParser"] is ChatParser


def test_a_piece_that_is_all_held_back_is_not_the_end() -> None:
    found = parsed(PASTE_START + "a", "\x1b", "[201~", "x")
    assert [type(event) for event in found] == [events.Paste, events.Key]


@pytest.mark.parametrize("digit", "0123456789")
def test_alt_and_a_digit_is_that_key(digit: str) -> None:
    """Textual reads it as what a Mac's Option key types, such as "™"."""
    keys = [event.key for event in parsed(f"\x1b{digit}") if isinstance(event, events.Key)]
    assert keys == [f"alt+{digit}"]


def test_digits_in_sequences_and_pastes_stay() -> None:
    typed = "\x1b[1;3A\x1b[3~\x1bOQ"
    assert InputFilter().feed(typed) == typed
    assert InputFilter().feed(f"{PASTE_START}\x1b2{PASTE_END}") == f"{PASTE_START}␛2{PASTE_END}"
