"""Lists of problems as one line."""

from __future__ import annotations

import pytest

from ds4chat.formats.show import problem_text
from ds4chat.tui.problems import brief


@pytest.mark.parametrize(
    ("problems", "line"),
    [
        (["no tensors"], "x.gguf: no tensors"),
        (["a: 3, wanted 4", "b"], "x.gguf: a: 3, wanted 4 (and 1 more)"),
        (["a", "b", "c"], "x.gguf: a (and 2 more)"),
    ],
)
def test_the_first_problem_stands_for_all(problems: list[str], line: str) -> None:
    assert brief(problem_text("x.gguf", problems)) == line


def test_other_messages_become_one_line() -> None:
    assert brief("x: not a GGUF file") == "x: not a GGUF file"
    assert brief("first\n second") == "first second"
