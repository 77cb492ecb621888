"""`ds4chat sessions`: what a person types and reads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.cli import sessions
from ds4chat.store import transcripts
from ds4chat.store.library import Library
from ds4chat.store.records import SnapshotSaved
from tests.unit.store import build

SAMPLES = Path(__file__).parents[2] / "sessions" / "samples"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    found = Library(tmp_path / "sessions", clock=build.clock())
    session = found.create("quicksort")
    build.say(session, "Write quicksort\x1b[2J")
    build.say(session, "And mergesort?", "no \x1b[31m red")
    session.fork(1, "other")
    session.close()
    return found


@pytest.fixture
def run(library: Library, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*words: str) -> tuple[int, str, str]:
        status = sessions.run([*words, "--sessions", str(library.root)])
        out, err = capsys.readouterr()
        assert "\x1b" not in out + err
        return status, out, err

    return go


def test_list(run: Run) -> None:
    status, out, _ = run("list")
    assert status == 0
    name, facts, preview = out.splitlines()
    assert name == "quicksort"
    assert facts.strip().startswith("2 turns · ")
    assert facts.endswith(" ago")
    assert preview.strip() == "Write quicksort\ufffd[2J"


def test_a_session_of_one_turn_has_one_turn(run: Run, library: Library) -> None:
    session = library.create("short")
    build.say(session, "Hello")
    session.close()
    _, out, _ = run("list")
    assert "\n    1 turn · " in out


def test_list_as_json(run: Run, library: Library) -> None:
    status, out, _ = run("list", "--json")
    (row,) = json.loads(out)
    assert status == 0
    assert (row["name"], row["n_turns"], row["kv_bytes"]) == ("quicksort", 2, 0)
    assert row["path"] == str(library.root / "quicksort")


def test_list_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sessions.run(["--sessions", str(tmp_path / "none"), "list"]) == 0
    assert "no sessions in" in capsys.readouterr().out


def test_show(run: Run) -> None:
    status, out, _ = run("show", "quicksort", "--branch", "main")
    assert status == 0
    assert "you (1): Write quicksort\ufffd[2J" in out
    assert "you (2): And mergesort?" in out
    assert "And mergesort?" not in run("show", "quicksort")[1]
    assert run("show", "quicksort", "--branch", "nowhere")[0] == 1


def test_show_the_tree(run: Run) -> None:
    assert run("show", "--tree", "quicksort")[1].splitlines() == [
        "  main: 1 2",
        "* other (from main): 1",
    ]


def test_show_warns_of_damage(run: Run, library: Library) -> None:
    with (library.root / "quicksort" / transcripts.FILE_NAME).open("ab") as file:
        file.write(b'{"torn')
    status, out, err = run("show", "quicksort")
    assert status == 0
    assert "was dropped" in err
    assert "you (1)" in out


def test_search(run: Run) -> None:
    status, out, _ = run("search", "MERGESORT")
    assert (status, out) == (0, "quicksort, turn 2, you: And mergesort?\n")
    status, out, err = run("search", "bubblesort")
    assert (status, out) == (1, "")
    assert "was not said" in err


def test_rename_delete_undelete(run: Run, library: Library) -> None:
    assert run("rename", "quicksort", "sorting")[:2] == (0, "renamed to sorting\n")
    status, out, _ = run("delete", "sorting")
    assert (status, library.names()) == (0, [])
    assert "ds4chat sessions undelete sorting" in out
    assert run("list", "--deleted")[1] == "sorting\n"
    status, out, _ = run("undelete", "sorting")
    assert status == 0
    assert out == f"it is back: ds4chat -r sorting --sessions {library.root}\n"
    assert library.names() == ["sorting"]


def test_strip(run: Run, library: Library) -> None:
    session = library.open("quicksort")
    session.snapshots_dir.mkdir()
    (session.snapshots_dir / "s.json").write_bytes(b"\0" * 2048)
    session.snapshot_saved(SnapshotSaved(name="s", n_tokens=1, token_hash="x"))
    session.close()
    assert "+ 2 kB KV" in run("list")[1]
    assert run("strip", "quicksort")[1].startswith("2 kB freed")
    assert "KV" not in run("list")[1]


def test_path(run: Run, library: Library) -> None:
    assert run("path", "quicksort")[:2] == (0, f"{library.root / 'quicksort'}\n")


@pytest.mark.parametrize(
    ("suffix", "begin"),
    [("md", "# quicksort"), ("json", "{"), ("html", "<!DOCTYPE html>"), ("svg", "<svg ")],
)
def test_export_to_a_file(run: Run, tmp_path: Path, suffix: str, begin: str) -> None:
    target = tmp_path / f"out.{suffix}"
    assert run("export", "quicksort", "-o", str(target))[0] == 0
    assert target.read_text(encoding="utf-8").startswith(begin)
    assert target.stat().st_mode & 0o777 == 0o600
    status, _, err = run("export", "quicksort", "-o", str(target))
    assert "--force" in err
    assert status != 0
    assert run("export", "quicksort", "-o", str(target), "--force", "--branch", "main")[0] == 0


def test_export_to_standard_output(run: Run) -> None:
    assert run("export", "quicksort")[1].startswith("# quicksort\n")
    assert run("export", "quicksort", "--format", "svg", "--theme", "light")[1].startswith(
        "<svg"
    )
    assert run("export", "quicksort", "--format", "svg", "--theme", "drak")[0] == 2


def test_export_wants_a_known_format(run: Run, tmp_path: Path) -> None:
    status, _, err = run("export", "quicksort", "-o", str(tmp_path / "out.pdf"))
    assert status == 2
    assert "the suffix '.pdf' names no format; there are .md, " in err
    assert f"For example: -o {tmp_path / 'out.md'}, or --format markdown" in err
    assert not (tmp_path / "out.pdf").exists()
    status, _, err = run("export", "quicksort", "-o", str(tmp_path / "out"))
    assert status == 2
    assert "no suffix; there are .md, " in err


@pytest.mark.parametrize("name", ["../quicksort", "/etc", "", "a\nb", "CON"])
@pytest.mark.parametrize("what", ["show", "delete", "undelete", "strip", "export", "path"])
def test_hostile_names_are_refused_in_one_line(run: Run, what: str, name: str) -> None:
    status, out, err = run(what, name)
    assert (status, out) == (1, "")
    assert err.startswith("ds4chat: ")
    assert len(err.splitlines()) == 2


def test_a_missing_session_names_the_nearest(run: Run) -> None:
    status, _, err = run("show", "quiksort")
    assert status == 1
    assert "Did you mean 'quicksort'?" in err


def test_a_session_that_is_open_elsewhere(run: Run, library: Library) -> None:
    session = library.open("quicksort")
    for what in (["delete", "quicksort"], ["strip", "quicksort"], ["rename", "quicksort", "b"]):
        status, _, err = run(*what)
        assert status == 1
        assert "open in another window (process " in err
    status, _, err = run("show", "quicksort")
    assert status == 0
    assert "it is open in process" in err
    session.close()


def test_a_folder_that_cannot_be_read_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert sessions.run(["--sessions", str(tmp_path / "file"), "list"]) == 2
    assert "a file, not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["lst"], ["show"], ["list", "--jso"], ["export", "a", "--format", "pdf"]]
)
def test_wrong_arguments_are_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        sessions.run(words)
    assert caught.value.code == 2
    assert "usage: ds4chat sessions" in capsys.readouterr().err


def test_the_usual_folder_is_the_data_folder(
    isolated_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sessions.run(["list"]) == 0
    assert (
        str(isolated_environment / "data" / "ds4chat" / "sessions") in capsys.readouterr().out
    )


def test_the_samples_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert sessions.run(["show", "v1-scripted", "--sessions", str(SAMPLES)]) == 0
    assert "What is 2 + 2?" in capsys.readouterr().out
    assert sorted(path.name for path in (SAMPLES / "v1-scripted").iterdir()) == [
        "transcript.jsonl"
    ]


def test_listing_imports_neither_the_screen_nor_tensors() -> None:
    code = (
        "import sys; from ds4chat.cli import sessions; "
        f"sessions.run(['list', '--sessions', {str(SAMPLES)!r}]); "
        "sys.exit(bool({'textual', 'rich', 'mlx', 'numpy', 'gguf'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
