"""A home folder that cannot be written, or is not there: what needs no file works."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.protocol.types import ThinkMode
from ds4chat.store import journal
from ds4chat.store.files import FileOps
from ds4chat.store.library import Library
from ds4chat.store.records import Replied
from tests.contract.one_shot import pipe_in, run

VARIABLES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")

Move = Callable[[Path], None]


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Move:
    """Gives the process another home; where its parent is a file, nothing can be made in it."""

    def to(home: Path) -> None:
        monkeypatch.setenv("HOME", str(home))
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)

    return to


@pytest.fixture
def home(tmp_path: Path, move: Move) -> Path:
    (tmp_path / "file").touch()
    move(tmp_path / "file" / "home")
    return tmp_path / "file" / "home"


@pytest.mark.usefixtures("home", "no_input")
@pytest.mark.parametrize("flags", [(), ("--json",), ("-v",)])
def test_one_shot_answers(
    model: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert run(model, "-p", "say x", *flags) == 0
    out, err = capsys.readouterr()
    assert "x" in out
    assert "folder" not in err
    assert "cannot" not in err


@pytest.mark.usefixtures("home")
def test_plain_lines_are_answered(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe_in(monkeypatch, b"say x\n")
    assert run(model) == 0
    assert "x" in capsys.readouterr().out


@pytest.mark.usefixtures("no_input")
def test_the_list_of_no_sessions(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sessions", "list") == 0
    assert capsys.readouterr() == (f"no sessions in {home}/.local/share/ds4chat/sessions\n", "")
    assert run("sessions", "list", "--json") == 0
    assert capsys.readouterr() == ("[]\n", "")
    assert run("sessions", "list", "--deleted") == 0
    assert capsys.readouterr() == ("the trash is empty\n", "")
    assert run("sessions", "search", "word") == 1
    assert run("sessions", "show", "talk") == 1
    assert "there is no session 'talk'" in capsys.readouterr().err


def test_a_list_makes_no_folder(
    tmp_path: Path, move: Move, capsys: pytest.CaptureFixture[str]
) -> None:
    move(tmp_path / "home")
    assert run("sessions", "list") == 0
    assert "no sessions in" in capsys.readouterr().out
    assert not (tmp_path / "home").exists()


def test_a_folder_of_sessions_that_is_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run("sessions", "list", "--sessions", tmp_path / "file") == 2
    assert f"--sessions {tmp_path}/file: a file, not a folder" in capsys.readouterr().err


@pytest.mark.usefixtures("no_input")
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_turn_that_cannot_be_kept_is_answered_with_a_notice(
    number: int,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    library = Library(tmp_path / "sessions")
    made = library.create("talk")
    made.ask("first", ThinkMode.OFF)
    made.append(Replied(turn_id=1, text="one"))
    made.close()
    before = {path: path.read_bytes() for path in made.folder.iterdir()}

    def refuse(ops: FileOps, path: Path) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(journal, "open_for_append", refuse)
    for flags in (("-r", "talk"), ("--continue",)):
        assert run(model, "--sessions", tmp_path / "sessions", *flags, "-p", "say x") == 0
        out, err = capsys.readouterr()
        assert out == "x\n"
        (notice,) = [line for line in err.splitlines() if "not kept" in line]
        assert notice.startswith("ds4chat: what is said now is not kept: ")
        assert notice.endswith(f"cannot be opened: {os.strerror(number)}")
    assert {path: path.read_bytes() for path in made.folder.iterdir()} == before


@pytest.mark.usefixtures("no_input")
def test_lines_behind_a_session_that_cannot_be_kept(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Library(tmp_path / "sessions").create("talk").close()

    def refuse(ops: FileOps, path: Path) -> int:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(journal, "open_for_append", refuse)
    pipe_in(monkeypatch, b"say one\nsay two\n")
    assert run(model, "--sessions", tmp_path / "sessions", "-r", "talk") == 0
    out, err = capsys.readouterr()
    assert "one" in out
    assert err.count("not kept") == 1


@pytest.mark.slow
def test_the_real_engine_answers(home: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ds4chat", "-p", "Hi", "-n", "4"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip()
