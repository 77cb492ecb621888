"""The whole program in a pseudo-terminal: keys in, colours out, the terminal given back."""

from __future__ import annotations

import os
import signal
import termios
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat import paths
from tests.terminal import Terminal

PROGRAM, BARE = "tests.scripted_chat", "tests.bare_chat"
READY, LEFT = "\x1b[?1049h", "\x1b[?1049l"
ANSWER = "café"  # stands in the reply, not in the question


@pytest.fixture
def terminal(model: Path) -> Iterator[Terminal]:
    made = Terminal(PROGRAM, str(model))
    yield made
    made.kill()


def source_colours() -> dict[str, str]:
    """The default theme's colour of each source, as SGR parameters."""
    theme = tomllib.loads((paths.themes_dir() / "dark.toml").read_text())
    found = {}
    for source, value in theme["sources"].items():
        red, green, blue = (int(value[place : place + 2], 16) for place in (1, 3, 5))
        found[source] = f"38;2;{red};{green};{blue}"
    return found


def is_restored(terminal: Terminal) -> bool:
    raw = terminal.raw
    shows_cursor = raw.rfind("\x1b[?25h") > raw.rfind("\x1b[?25l")
    return raw.rfind(LEFT) > raw.rfind(READY) >= 0 and shows_cursor


def test_ask_read_in_colour_and_quit(terminal: Terminal) -> None:
    terminal.until(lambda raw: READY in raw)
    terminal.until_shown("scripted")
    terminal.write("tell me\r")
    terminal.until_shown(ANSWER)
    terminal.until_shown("tok/s")
    terminal.write("\x11")
    assert terminal.end() == 0
    assert is_restored(terminal)
    colours = source_colours()
    words = {"quick", "brown", "fox", "sees", "goes", "home"}
    shown = {
        source
        for source, colour in colours.items()
        for style, text in terminal.styled()
        if colour in style and any(word in text for word in words)
    }
    assert "accepted" in shown


def test_the_line_discipline_is_given_back(terminal: Terminal) -> None:
    terminal.until(lambda raw: READY in raw)
    terminal.until_shown("scripted")
    during = termios.tcgetattr(terminal.fd)
    assert not during[3] & termios.ECHO
    terminal.write("\x11")
    terminal.until(lambda raw: LEFT in raw)
    assert terminal.end() == 0
    try:
        after = termios.tcgetattr(terminal.fd)
    except termios.error:
        return  # the terminal went with its last process
    assert after[3] & termios.ECHO == terminal.before[3] & termios.ECHO
    assert after[3] & termios.ICANON == terminal.before[3] & termios.ICANON


@pytest.mark.parametrize("question", ["", "endless", "hang"])
def test_quit_while_idle_streaming_and_in_a_long_prompt(
    terminal: Terminal, question: str
) -> None:
    terminal.until_shown("scripted")
    if question:
        terminal.write(f"{question}\r")
    if question == "endless":
        terminal.until_shown("goes home")
    terminal.write("\x11")
    assert terminal.end() == 0
    assert is_restored(terminal)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_gives_the_terminal_back(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.until_shown("scripted")
    os.kill(terminal.pid, number)
    assert terminal.end() == 128 + number
    assert is_restored(terminal)


def test_a_closed_window_is_no_defect(terminal: Terminal, isolated_environment: Path) -> None:
    terminal.until_shown("scripted")
    terminal.write("tell me\r")
    terminal.until_shown(ANSWER)
    os.close(terminal.fd)
    _, status = os.waitpid(terminal.pid, 0)
    terminal.fd = os.open(os.devnull, os.O_RDONLY)  # for the end of the test
    terminal._status = os.waitstatus_to_exitcode(status)
    assert terminal._status == 128 + signal.SIGHUP
    logs = isolated_environment / "state" / "ds4chat"
    assert (logs / "engine.log").is_file()
    assert not list(logs.glob("crash-*"))


def test_no_color_means_no_colours(model: Path) -> None:
    terminal = Terminal(PROGRAM, str(model), "--color", "never")
    try:
        terminal.until_shown("scripted")
        terminal.write("tell me\r")
        terminal.until_shown(ANSWER)
        terminal.write("\x11")
        assert terminal.end() == 0
        styles = {style for style, _ in terminal.styled()}
        greys = {
            style for style in styles for colour in source_colours().values() if colour in style
        }
        assert not greys
    finally:
        terminal.kill()


def test_without_a_model_the_tour_is_offered() -> None:
    terminal = Terminal(BARE)
    try:
        terminal.until_shown("[Y/n]")
        assert "--model" in terminal.plain
        terminal.write("y\n")
        terminal.until(lambda raw: READY in raw)
        terminal.until_shown("Recorded tour")
        terminal.write("\x11")
        assert terminal.end() == 0
        assert is_restored(terminal)
    finally:
        terminal.kill()


def test_a_declined_tour_is_no_mistake() -> None:
    terminal = Terminal(BARE)
    try:
        terminal.until_shown("[Y/n]")
        terminal.write("n\n")
        assert terminal.end() == 0
        assert READY not in terminal.raw
    finally:
        terminal.kill()


DUMB = {"TERM": "dumb"}


@pytest.fixture
def dumb(model: Path) -> Iterator[Terminal]:
    made = Terminal(PROGRAM, str(model), environ=DUMB)
    yield made
    made.kill()


def test_a_dumb_terminal_gets_plain_lines(dumb: Terminal) -> None:
    dumb.until_shown("> ")
    dumb.write("say one\n")
    dumb.until_shown("one\r\n> ")
    dumb.write("say two\n")
    dumb.until_shown("two\r\n> ")
    dumb.write("\x04")
    assert dumb.end() == 0
    assert dumb.raw.endswith("> \r\n")
    assert "\x1b" not in dumb.raw


def test_plain_lines_do_not_send_a_command_to_the_model(dumb: Terminal) -> None:
    dumb.until_shown("> ")
    dumb.write("/help me\n")
    dumb.until_shown("/help is a command of the full screen; it was not sent")
    dumb.until(lambda raw: raw.endswith("\r\n> "))
    dumb.write("say /usr/bin\n")
    dumb.until_shown("/usr/bin\r\n> ")
    dumb.write("/quit\n")
    assert dumb.end() == 0


def test_an_interrupt_stops_a_reply_and_at_the_prompt_leaves(dumb: Terminal) -> None:
    dumb.until_shown("> ")
    dumb.write("endless\n")
    dumb.until_shown("goes home")
    dumb.write("\x03")
    # The terminal drops what was not read, and shows the key somewhere in what follows.
    dumb.until(lambda raw: "^C" in raw and raw.replace("^C", "").endswith("> "))
    dumb.write("say still here\n")
    dumb.until_shown("still here\r\n> ")
    dumb.write("\x03")
    assert dumb.end() == 130
    assert dumb.raw.rpartition("> ")[2].replace("^C", "") == "\r\n"
    assert "at the prompt it leaves" in dumb.raw
