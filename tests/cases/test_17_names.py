"""Names that lead elsewhere, two writers, and who may read what the program writes."""

from __future__ import annotations

import os
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.cli import sessions
from ds4chat.cli.main import main
from ds4chat.demo import Reply
from ds4chat.errors import SettingsError
from ds4chat.store.library import Library
from ds4chat.tui import commands, settings_file
from ds4chat.tui.history import History
from tests.make_pair import PairPaths, make_pair
from tests.pilot.driver import run_chat
from tests.pilot.keeping import desk_of, kept, on_disk, saved
from tests.scripted_chat import make_link
from tests.terminal import Terminal
from tests.unit.store import build
from tests.unit.store.test_names import HOSTILE

NAMES = [name for name in HOSTILE if name.strip()]  # without a name they ask for one
GIVEN = ["../x", "/etc/passwd", ".", "x" * 300, "a\nb", "a\x00b", "-rf", "CON"]
CTRL_Q = "\x11"


def tree_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, links unfollowed, with the contents of files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of sessions inside a folder whose other files are none of its business."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "transcript.jsonl").write_text("precious")
    (tmp_path / "passwd").write_text("precious")
    session = Library(tmp_path / "sessions", clock=build.clock()).create("mine")
    build.say(session, "kept")
    session.close()
    return tmp_path


def outside(home: Path) -> dict[str, bytes]:
    return {
        name: data for name, data in tree_of(home).items() if not name.startswith("sessions")
    }


@pytest.mark.parametrize("hostile", [GIVEN, pytest.param(NAMES, marks=pytest.mark.slow)])
async def test_no_command_of_the_chat_leaves_the_folder(home: Path, hostile: list[str]) -> None:
    """Save, load, delete, rename, and all the others that take a name."""
    before = outside(home)
    async with run_chat(Reply(answer="Yes."), options=kept(home / "sessions")) as chat:
        await chat.ask("go")
        await chat.until(lambda: desk_of(chat).session)
        names = set(Library(home / "sessions").names())
        for name in hostile:
            for command in ("save", "resume", "del", "rename", "undelete", "strip"):
                n_before = len(chat.transcript())
                commands.execute(chat.screen, command, name)
                await chat.until(lambda n=n_before: len(chat.transcript()) > n)  # type: ignore[misc]
                said = chat.transcript()[n_before:]
                assert "cannot name a session" in " ".join(said.split()), (command, name)
                assert "\x1b" not in said
        assert set(Library(home / "sessions").names()) == names
        name = await saved(chat)
    assert outside(home) == before
    assert [turn.question for turn in on_disk(home / "sessions", name).path()] == ["go"]


@pytest.mark.parametrize(
    "name",
    [
        name if name in GIVEN else pytest.param(name, marks=pytest.mark.slow)
        for name in NAMES
        if name == name.strip()
    ],
)
def test_no_command_line_leaves_the_folder(
    name: str, home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = tree_of(home)
    where = ["--sessions", str(home / "sessions")]
    for words in (
        ["rename", "--", "mine", name],
        ["rename", "--", name, "other"],
        ["delete", "--", name],
        ["strip", "--", name],
        ["show", "--", name],
    ):
        assert sessions.run([*where, *words]) == 1, words
    model = tmp_path / "scripted.gguf"
    model.touch()
    for flag in ("--resume", "--replay"):
        status = main([str(model), *where, f"{flag}={name}", "-p", "hello"], make_link)
        assert status in (1, 2), flag
    err = capsys.readouterr().err
    assert "\x1b[31m" not in err
    model.unlink()
    assert tree_of(home) == before


def test_a_name_that_is_taken_by_two_at_once_goes_to_one(tmp_path: Path) -> None:
    """Windows that begin a chat in the same second, about the same thing."""
    n, root = 12, tmp_path / "sessions"
    start = threading.Barrier(n)
    made: list[str] = []

    def begin(number: int) -> None:
        start.wait()
        session = Library(root, clock=build.clock()).create(about="Why is it so?")
        build.say(session, f"question {number}")
        session.close()
        made.append(session.name)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == n
    library = Library(root)
    asked = sorted(library.read(name).tree.path()[0].question for name in library.names())
    assert asked == sorted(f"question {number}" for number in range(n))
    assert [p for p in root.iterdir() if p.name.startswith(".") and p.name != ".trash"] == []


def test_two_windows_share_a_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    one, two = History(path), History(path)
    for number in range(200):
        (one if number % 2 else two).add(f"question {number}")
    assert History(path)._entries == [f"question {number}" for number in range(200)]


def test_two_windows_keep_both_their_settings(tmp_path: Path) -> None:
    """Each reads the file, changes one line and replaces it: no change may be lost."""
    path = tmp_path / "config" / "config.toml"
    values: dict[str, int | float | str] = {
        "temp": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "ctx": 4096,
        "theme": "light",
        "think": "on",
    }
    start = threading.Barrier(len(values))

    def keep(name: str) -> None:
        start.wait()
        for _ in range(20):
            settings_file.keep(path, name, values[name])

    threads = [threading.Thread(target=keep, args=(name,)) for name in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tomllib.loads(path.read_text()) == values
    assert [p.name for p in path.parent.iterdir()] == ["config.toml"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_nobody_else_can_read_what_a_run_leaves(pair: PairPaths, tmp_path: Path) -> None:
    """Transcript, snapshots, history, logs: of the real program, whatever the umask."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    where = {
        f"XDG_{n}_HOME": str(home / n.lower()) for n in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    terminal = Terminal(
        "ds4chat", str(pair.base), "--cpu", "--ctx", "512", "-n", "8",
        environ={"HOME": str(home), **where},
    )  # fmt: skip
    try:
        terminal.until_shown("/512")
        terminal.write("tell me\r")
        terminal.until_shown("tok/s")
        terminal.write("/temp 0.5\r")
        terminal.until(lambda _: list(home.rglob("snapshots/*.json")))
        terminal.write(CTRL_Q)
        assert terminal.end() == 0
    finally:
        terminal.kill()
    found = {
        str(path.relative_to(home)): path.lstat().st_mode & 0o777 for path in home.rglob("*")
    }
    names = " ".join(found)
    assert all(part in names for part in ("transcript", "safetensors", "history", "log"))
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


def test_a_setting_of_no_name_is_refused(tmp_path: Path) -> None:
    """What names a file elsewhere is held to the same rule: a theme is a name and no path."""
    from ds4chat.tui import themes  # noqa: PLC0415 - brings the screen along

    (tmp_path / "evil.toml").write_text("[ui]\n")
    (tmp_path / "themes").mkdir()
    for name in ("../evil", str(tmp_path / "evil"), "..", "a\x00b"):
        with pytest.raises(SettingsError):
            themes.pick(themes.load_themes([tmp_path / "themes"]), name)
