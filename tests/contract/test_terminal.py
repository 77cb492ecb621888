"""The pseudo-terminal of these tests itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal

Open = Callable[[str], Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Open]:
    """Run a program, given as its text."""
    made: list[Terminal] = []

    def begin(code: str) -> Terminal:
        (tmp_path / "the_program.py").write_text(code)
        made.append(Terminal("the_program", environ={"PYTHONPATH": str(tmp_path)}))
        return made[-1]

    yield begin
    for terminal in made:
        terminal.kill()


def test_a_character_that_comes_in_two_pieces_is_one(start: Open) -> None:
    terminal = start(
        "import os, tty\n"
        "tty.setraw(0)\n"
        "os.write(1, b'caf\\xc3')\n"
        "os.read(0, 1)\n"
        "os.write(1, b'\\xa9')\n"
    )
    terminal.until_shown("caf")
    terminal.write(".")
    assert terminal.end() == 0
    assert terminal.plain == "café"


def test_the_program_has_a_terminal_of_its_own_and_that_size(start: Open) -> None:
    terminal = start(
        "import os, signal, sys\n"
        "print(os.get_terminal_size(), os.tcgetpgrp(0) == os.getpid() == os.getsid(0))\n"
        "sys.exit(os.isatty(0) + os.isatty(1) + os.isatty(2))\n"
    )
    assert terminal.end() == 3
    assert "columns=120, lines=40) True" in terminal.plain


def test_what_was_shown_before_is_not_what_is_waited_for(start: Open) -> None:
    terminal = start("for word in ('one', 'two'):\n    print(word, input())\n")
    terminal.write("1\n")
    terminal.until_shown("one 1")
    n_before = len(terminal.raw)
    terminal.write("2\n")
    assert terminal.end() == 0
    assert terminal.until_shown("two 2", since=n_before)
    with pytest.raises(AssertionError, match="the program ended"):
        terminal.until_shown("one 1", since=n_before)
