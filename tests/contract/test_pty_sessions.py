"""Sessions of the whole program: ended by signals, resumed by the command that it printed."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat.protocol.types import FinishReason
from ds4chat.store.library import Library
from ds4chat.store.tree import Turn
from tests.terminal import Terminal

PROGRAM = "tests.scripted_chat"
PRINTED = "Resume this chat with: ds4chat "

Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    model = tmp_path / "scripted.gguf"
    model.touch()
    made: list[Terminal] = []

    def begin(*argv: str) -> Terminal:
        made.append(Terminal(PROGRAM, str(model), *argv))
        made[-1].until_shown("scripted")
        return made[-1]

    yield begin
    for terminal in made:
        terminal.kill()


def turns(root: Path) -> list[Turn]:
    library = Library(root)
    (name,) = library.names()
    return library.read(name).tree.path()


def printed_arguments(terminal: Terminal) -> list[str]:
    """The arguments of the command that the program printed when it ended."""
    line = terminal.plain.split(PRINTED, 1)[1].splitlines()[0]
    return shlex.split(line)


def test_the_printed_command_resumes_the_chat(start: Start, tmp_path: Path) -> None:
    root = tmp_path / "my sessions"
    terminal = start("--sessions", str(root))
    terminal.write("tell me\r")
    terminal.until_shown("tok/s ·")
    terminal.write("\x11")
    assert terminal.end() == 0
    again = start(*printed_arguments(terminal))
    again.until_shown("goes home")
    again.until_shown("1 turns")
    again.write("say something else\r")
    again.until_shown("something else")
    again.write("\x11")
    assert again.end() == 0
    assert [turn.question for turn in turns(root)] == ["tell me", "say something else"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_reply_keeps_the_partial_text(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    terminal = start("--sessions", str(tmp_path / "s"))
    terminal.write("endless\r")
    terminal.until_shown("goes home")
    os.kill(terminal.pid, number)
    assert terminal.end() == 128 + number
    assert PRINTED in terminal.plain
    (turn,) = turns(tmp_path / "s")
    assert "goes home" in turn.answer_text
    assert turn.reason is FinishReason.ERROR
    assert not turn.damage


def test_a_killed_program_keeps_the_partial_text(start: Start, tmp_path: Path) -> None:
    terminal = start("--sessions", str(tmp_path / "s"))
    terminal.write("endless\r")
    terminal.until_shown("goes home")
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.end()
    assert "goes home" in turns(tmp_path / "s")[0].answer_text
    again = start("--sessions", str(tmp_path / "s"), "--continue")
    again.until_shown("goes home")
    again.write("say fine\r")
    again.until_shown("fine")
    again.write("\x11")
    assert again.end() == 0
    ended = turns(tmp_path / "s")
    assert ended[0].reason is FinishReason.ERROR
    assert ended[1].question == "say fine"


def test_an_unknown_session_is_a_usage_error_before_a_model_is_opened(tmp_path: Path) -> None:
    model = tmp_path / "scripted.gguf"
    model.touch()
    for argv in (["-r", "nothing"], ["--continue"], ["-r", "../x"]):
        terminal = Terminal(PROGRAM, str(model), "--sessions", str(tmp_path / "s"), *argv)
        assert terminal.end() == 2
        assert "session" in terminal.plain
        terminal.kill()
