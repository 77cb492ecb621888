"""Sessions of the whole program: ended by signals, resumed by the command that it printed."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat import paths
from ds4chat.protocol.types import FinishReason, Span
from ds4chat.store.library import Library
from ds4chat.store.tree import Turn
from tests.make_pair import PairPaths, make_pair
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
        named = [] if "-m" in argv else [str(model)]
        made.append(Terminal(PROGRAM, *named, *argv))
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
    again.until_shown("1 turn.")
    again.write("say something else\r")
    again.until(lambda _: len(turns(root)) == 2 and turns(root)[1].finished)
    again.write("\x11")
    assert again.end() == 0
    assert [turn.question for turn in turns(root)] == ["tell me", "say something else"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31)


@pytest.fixture
def writing(pair: PairPaths, tmp_path: Path) -> Iterator[Terminal]:
    """The real engine in the middle of a reply that takes a minute."""
    terminal = Terminal(
        "ds4chat",
        str(pair.base),
        "--ctx",
        "4096",
        "--ignore-eos",
        "--sessions",
        str(tmp_path / "s"),
    )
    terminal.until_shown("/4k")
    terminal.write("tell me\r")
    terminal.until(lambda _: len(spans(tmp_path / "s")) > 5)
    yield terminal
    terminal.kill()


def spans(root: Path) -> list[Span]:
    """The tokens that are in the file by now."""
    if not Library(root).names():
        return []
    return [span for turn in turns(root) for span in turn.spans()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_reply_keeps_the_partial_text(
    writing: Terminal, tmp_path: Path, number: signal.Signals
) -> None:
    os.kill(writing.pid, number)
    assert writing.end() == 128 + number
    assert PRINTED in writing.plain
    (turn,) = turns(tmp_path / "s")
    assert turn.ids == [span.token.id for span in turn.spans()]
    assert len(turn.ids) > 5
    assert turn.reason is FinishReason.ERROR
    assert "ended during this reply" in (turn.finished.message if turn.finished else "")
    assert not turn.damage


def test_a_killed_program_keeps_the_partial_text(
    writing: Terminal, pair: PairPaths, tmp_path: Path
) -> None:
    os.kill(writing.pid, signal.SIGKILL)
    writing.end()
    before = turns(tmp_path / "s")[0]
    assert before.finished is None
    again = Terminal(
        "ds4chat", str(pair.base), "--ctx", "4096", "-n", "5", "--continue",
        "--sessions", str(tmp_path / "s"),
    )  # fmt: skip
    try:
        again.until_shown("broken off")
        again.write("go on\r")
        again.until(lambda _: len(turns(tmp_path / "s")) == 2)
        again.until(lambda _: turns(tmp_path / "s")[1].finished)
        again.write("\x11")
        assert again.end() == 0
    finally:
        again.kill()
    ended = turns(tmp_path / "s")
    assert ended[0].ids == before.ids != []
    assert [turn.reason for turn in ended] == [FinishReason.ERROR, FinishReason.LENGTH]


@pytest.mark.parametrize("name", Library(paths.samples_dir()).names())
def test_a_sample_session_is_replayed_without_a_model(name: str) -> None:
    samples = paths.samples_dir()
    first = Library(samples).read(name).tree.path()[0]
    terminal = Terminal(PROGRAM, "--replay", name, "--sessions", str(samples))
    try:
        terminal.until_shown(f"Replay of {name}")
        terminal.until_shown(first.question.split()[0])
        terminal.until_shown("tok/s ·")
        terminal.write("\x11")
        assert terminal.end() == 0
    finally:
        terminal.kill()


def test_an_unknown_session_is_a_usage_error_before_a_model_is_opened(tmp_path: Path) -> None:
    model = tmp_path / "scripted.gguf"
    model.touch()
    for argv in (["-r", "nothing"], ["--replay", "x"], ["--continue"], ["-r", "../x"]):
        terminal = Terminal(PROGRAM, str(model), "--sessions", str(tmp_path / "s"), *argv)
        assert terminal.end() == 2
        assert "session" in terminal.plain
        terminal.kill()


def test_the_shipped_sample_replays_without_a_model() -> None:
    terminal = Terminal("ds4chat", "--replay", "v1-scripted")
    try:
        terminal.until_shown("Replay of v1-scripted")
        terminal.write("\x11")
        assert terminal.end() == 0
    finally:
        terminal.kill()
