"""Lines: nothing lost but spaces at breaks, nothing wider than the room."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from ds4chat.tui.markdown.layout import chop, wrap
from tests.unit.tui.markdown.build import drawn, reply_of


def lines(text: str, width: int, first: int | None = None) -> list[str]:
    return [text[start:end] for start, end in wrap(text, 0, len(text), width, first)]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("", 5, [""]),
        ("ab cd ef", 5, ["ab cd", "ef"]),
        ("ab cd ef", 4, ["ab", "cd", "ef"]),
        ("abcdefgh ij", 5, ["abcde", "fgh", "ij"]),
        ("ab   cd", 3, ["ab", "cd"]),
        ("  abc de", 5, ["  abc", "de"]),
        ("éb cd éf", 5, ["éb cd", "éf"]),
        ("ébcdefgh ij", 5, ["ébcde", "fgh", "ij"]),
        ("日本語テキスト", 5, ["日本", "語テ", "キス", "ト"]),
        ("ab日本 cd", 4, ["ab日", "本", "cd"]),
        ("é   cd", 3, ["é", "cd"]),
        ("👩\u200d👧👩\u200d👧", 3, ["👩\u200d👧", "👩\u200d👧"]),
    ],
)
def test_wrap(text: str, width: int, expected: list[str]) -> None:
    assert lines(text, width) == expected


def test_the_first_line_may_be_shorter() -> None:
    assert lines("ab cd ef", 8, 2) == ["ab", "cd ef"]
    assert lines("éb cd ef", 8, 2) == ["éb", "cd ef"]


def test_chop_cuts_between_graphemes() -> None:
    text = "ab\u0301日本"
    assert [text[a:b] for a, b in chop(text, 0, len(text), 3)] == ["ab\u0301", "日", "本"]
    assert chop("", 0, 0, 3) == [(0, 0)]
    assert chop("abcdefg", 0, 7, 3) == [(0, 3), (3, 6), (6, 7)]


def test_list_text_hangs_below_its_marker() -> None:
    picture = drawn(reply_of(["12. one two three four\n    - five six seven eight"]).blocks, 16)
    assert picture == "12. one two\n    three four\n    • five six\n      seven\n      eight"


def test_table_columns_share_the_width() -> None:
    source = "| a | b |\n|---|---|\n| x | one two three four five six seven |\n"
    picture = drawn(reply_of([source]).blocks, 24).split("\n")
    assert max(cell_len(line) for line in picture) <= 24
    assert picture[0].startswith("a │ b")
    assert [line.split("│")[1].strip() for line in picture[2:]] == [
        "one two three four",
        "five six seven",
    ]


def test_a_long_word_behind_a_longer_first_line() -> None:
    text = "• é234567890123456789"
    assert lines(text, 18, 20) == ["•", "é23456789012345678", "9"]
