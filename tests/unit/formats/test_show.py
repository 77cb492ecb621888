from __future__ import annotations

import pytest

from ds4chat.formats.show import printable, problem_text, size_text


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


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 bytes"), (1536, "1.50 KiB"), (3 << 20, "3.00 MiB"), (1 << 31, "2.00 GiB")],
)
def test_sizes(n: int, text: str) -> None:
    assert size_text(n) == text


def test_one_problem_is_one_line_and_more_are_a_list() -> None:
    assert problem_text("f", ["a"]) == "f: a"
    assert problem_text("f", ["a", "b"]) == "f: 2 problems\n  - a\n  - b"
