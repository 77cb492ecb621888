"""What `ds4chat doctor` says of folders, disk space and saved sessions."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat import paths, settings
from ds4chat.cli import doctor_disk
from ds4chat.cli.doctor_disk import (
    FolderFacts,
    check_crashes,
    check_disk,
    check_folder,
    check_sessions,
    look,
)
from ds4chat.cli.doctor_finding import Finding, Mark
from ds4chat.protocol.types import ThinkMode
from ds4chat.store.library import Library

FINE = FolderFacts(
    name="logs", path=Path("/x"), there=Path("/x"), mode=0o700, is_mine=True, trouble="",
    free_bytes=9 * 10**9,
)  # fmt: skip


def quiet(_words: str) -> None:
    """Nobody watches."""


def test_a_fine_folder() -> None:
    found = check_folder(FINE)
    assert (found.mark, found.found) == (Mark.OK, "/x, 9.0 GB free")
    later = check_folder(replace(FINE, path=Path("/x/y")))
    assert later.mark is Mark.OK
    assert "not made yet" in later.found


@pytest.mark.parametrize(
    ("facts", "mark", "words"),
    [
        (replace(FINE, trouble="Read-only file system"), Mark.FAIL, "Read-only"),
        (replace(FINE, free_bytes=500 * 10**6), Mark.WARN, "500.0 MB free"),
        (replace(FINE, free_bytes=10**6), Mark.FAIL, "1.0 MB free"),
        (replace(FINE, mode=0o755), Mark.WARN, "others can look"),
        (replace(FINE, mode=0o755, is_mine=False), Mark.OK, "/x"),
        (replace(FINE, mode=0o755, path=Path("/x/y")), Mark.OK, "/x/y"),
        (replace(FINE, free_bytes=None), Mark.OK, "/x"),
    ],
)
def test_folders_with_trouble(facts: FolderFacts, mark: Mark, words: str) -> None:
    found = check_folder(facts)
    assert found.mark is mark
    assert words in found.found
    assert mark is Mark.OK or found.fix


def test_looking_makes_nothing(tmp_path: Path) -> None:
    facts = look("logs", tmp_path / "a" / "b")
    assert (facts.there, facts.trouble, facts.is_mine) == (tmp_path, "", True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_a_folders_place(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert check_folder(look("logs", tmp_path / "a")).mark is Mark.FAIL


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "denied" in look("logs", tmp_path).trouble
    tmp_path.chmod(0o700)


def test_every_folder_of_this_person() -> None:
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    found = check_disk(dirs)
    assert [finding.name for finding in found] == ["sessions", "build", "logs", "settings"]
    assert not dirs.data_root.exists()


# Sessions.


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def make(root: Path, n: int) -> list[Path]:
    library, folders = Library(root), []
    for i in range(n):
        session = library.create(about=f"private words {i}")
        session.ask("private words", ThinkMode.OFF)
        session.close()
        folders.append(session.folder)
    return folders


def test_sound_sessions(tmp_path: Path) -> None:
    make(tmp_path, 3)
    said: list[str] = []
    found = by_name(check_sessions(tmp_path, said.append))
    assert re.fullmatch(r"3, [1-9]\d* B text, 0 B KV snapshots", found["saved"].found)
    assert found["health"].mark is Mark.OK
    assert len(said) == 3
    assert "open" not in found


def test_damaged_sessions_are_counted_and_not_named(tmp_path: Path) -> None:
    first, second, _ = make(tmp_path, 3)
    (first / "transcript.jsonl").write_bytes(b"\x00 nothing")
    with (second / "transcript.jsonl").open("ab") as file:
        file.write(b'{"kind":"asked"}\n')
    found = by_name(check_sessions(tmp_path, quiet))
    assert found["health"].mark is Mark.WARN
    assert found["health"].found == "2 of 3 damaged"
    assert "sessions list" in found["health"].fix
    assert "private" not in str(found)


def test_a_last_line_that_a_kill_cut_off_is_no_damage(tmp_path: Path) -> None:
    (folder,) = make(tmp_path, 1)
    with (folder / "transcript.jsonl").open("ab") as file:
        file.write(b'{"kind":"as')
    assert by_name(check_sessions(tmp_path, quiet))["health"].mark is Mark.OK


def test_an_open_session_is_told(tmp_path: Path) -> None:
    session = Library(tmp_path).create(about="x")
    found = by_name(check_sessions(tmp_path, quiet))
    session.close()
    assert found["open"].found == "1 in a window now"


def test_not_all_of_very_many_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 3)
    monkeypatch.setattr(doctor_disk, "MAX_READ", 2)
    found = by_name(check_sessions(tmp_path, quiet))
    assert found["health"].found == "2 read, none damaged (1 older ones not read)"


def test_a_folder_that_is_not_there_holds_none(tmp_path: Path) -> None:
    found = by_name(check_sessions(tmp_path / "none", quiet))
    assert found["saved"].found.startswith("0, ")
    assert found["health"].mark is Mark.OK


def test_a_file_in_the_place_of_the_sessions(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = check_sessions(tmp_path / "file", quiet)
    assert found.mark is Mark.FAIL


def test_crash_reports_are_told(tmp_path: Path) -> None:
    assert check_crashes(tmp_path) == []
    for name in ("crash-20260101-000000.txt", "crash-20260201-000000.txt"):
        (tmp_path / name).touch()
    (found,) = check_crashes(tmp_path)
    assert found.mark is Mark.WARN
    assert "2 of defects" in found.found
    assert "20260201" in found.found
