"""Lists of problems as one line."""

from __future__ import annotations

import pytest

from ds4chat.formats.show import problem_text
from ds4chat.tui.problems import brief, joined, sentence


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


@pytest.mark.parametrize(
    ("message", "hint", "prose"),
    [
        ("too long by 5", "shorten it", "Too long by 5. Shorten it."),
        ("x.gguf: damaged", "", "x.gguf: damaged."),
        ("a folder", "For example: /export out.md", "A folder. For example: /export out.md"),
        (
            "a model is loaded",
            "Then: ds4chat -m FILE",
            "A model is loaded. Then: ds4chat -m FILE",
        ),
        ("what?", "Did you mean 'this'?", "What? Did you mean 'this'?"),
        ("no engine", "ds4chat -r NAME goes on.", "No engine. ds4chat -r NAME goes on."),
        ("", "", ""),
    ],
)
def test_errors_are_prose(message: str, hint: str, prose: str) -> None:
    assert sentence(message, hint) == prose


@pytest.mark.parametrize(
    ("message", "hint", "words"),
    [
        ("not a number", "The reply goes on.", "not a number. The reply goes on."),
        ("it is there already.", "Take another.", "it is there already. Take another."),
        ("no hint", "", "no hint"),
        ("", "The log: x.log", "The log: x.log"),
    ],
)
def test_two_sentences_are_never_glued(message: str, hint: str, words: str) -> None:
    assert joined(message, hint) == words
