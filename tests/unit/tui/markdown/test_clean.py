"""Cleaning: one character for one, and nothing left that a terminal obeys."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from ds4chat.tui.markdown.clean import clean, clean_joiners, clean_line

EVERY = "".join(map(chr, range(sys.maxunicode + 1)))


def test_length_and_harmless_text_stay() -> None:
    text = "Grüße, 日本 👩‍👧 e\u0301\t\n"
    assert clean(text) == text
    assert len(clean(EVERY)) == len(EVERY)


def test_no_control_of_any_kind_is_left() -> None:
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for char in set(clean(EVERY)) - {"\t", "\n"}:
        assert unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"}
        assert unicodedata.bidirectional(char) not in bidi


@pytest.mark.parametrize(
    ("char", "shown"),
    [("\x1b", "␛"), ("\x00", "␀"), ("\r", "␍"), ("\x7f", "␡"), ("\x9b", "�"), ("\u202e", "�")],
)
def test_controls_have_pictures(char: str, shown: str) -> None:
    assert clean(f"a{char}b") == f"a{shown}b"


def test_a_line_has_no_line_feeds() -> None:
    assert clean_line("a\tb\nc\x1b") == "a b c␛"


@pytest.mark.parametrize(
    ("text", "before", "shown"),
    [
        ("\u200dx", "", "�x"),
        ("\u200dx", " ", "�x"),
        ("\u200dx", "👩", "\u200dx"),
        ("a \u200d\u200db", "", "a �\u200db"),
        ("👩\u200d👧", "", "👩\u200d👧"),
    ],
)
def test_a_joiner_without_a_left_side_is_shown(text: str, before: str, shown: str) -> None:
    assert clean_joiners(text, before) == shown
