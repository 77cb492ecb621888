from __future__ import annotations

import pytest

from ds4chat.formats.show import printable, problem_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe ｜x｜", "plain größe ｜x｜"),
        ("a\x1b[31mb\x07", "a\\x1b[31mb\\x07"),
        ("line\nnext\r\t", "line\\nnext\\r\\t"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udcff", "\\udcff"),
    ],
)
def test_nothing_a_terminal_obeys_is_left(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_long_text_is_cut() -> None:
    assert printable("x" * 81) == "x" * 79 + "…"
    assert printable("x" * 80) == "x" * 80


def test_one_problem_is_one_line_and_more_are_a_list() -> None:
    assert problem_text("f", ["a"]) == "f: a"
    assert problem_text("f", ["a", "b"]) == "f: 2 problems\n  - a\n  - b"
