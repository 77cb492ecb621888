from __future__ import annotations

import stat
from pathlib import Path

from ds4chat.tui.history import MAX_ENTRIES, MAX_ENTRY, MAX_FILE_BYTES, History


def walk(history: History, typed: str, n: int) -> list[str | None]:
    found: list[str | None] = []
    for _ in range(n):
        found.append(history.older(typed))
        typed = found[-1] or typed
    return found


def filled(*texts: str) -> History:
    history = History()
    for text in texts:
        history.add(text)
    return history


def test_older_and_newer_end_at_the_draft() -> None:
    history = filled("one", "two")
    assert walk(history, "draft", 3) == ["two", "one", None]
    assert [history.newer(), history.newer(), history.newer()] == ["two", "draft", None]


def test_a_beginning_chooses_unless_nothing_begins_so() -> None:
    history = filled("/temp 1", "hello", "/temp 2", "help")
    assert walk(history, "/temp", 3) == ["/temp 2", "/temp 1", None]
    assert [history.newer(), history.newer()] == ["/temp 2", "/temp"]
    assert walk(history, "zzz", 2) == ["help", "/temp 2"]


def test_repeated_texts_are_kept_once_and_a_new_one_ends_the_walk() -> None:
    history = filled("one", "one", "two")
    assert walk(history, "", 3) == ["two", "one", None]
    history.add("three")
    assert history.older("") == "three"


def test_kept_over_runs_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    first = History(path)
    for text in ("one", "two\nlines \ud800", "x" * (MAX_ENTRY + 1)):
        first.add(text)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert walk(History(path), "", 3) == ["two\nlines \ud800", "one", None]


def test_damage_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'"good"\nnot json\n{"a": 1}\n\xff\n"also good"\n"cut')
    assert walk(History(path), "", 3) == ["also good", "good", None]
    path.write_bytes(b'"x"\n' * MAX_FILE_BYTES)
    assert History(path).older("") is None
    assert History(tmp_path).older("") is None


def test_a_long_file_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'"{n}"\n' for n in range(2 * MAX_ENTRIES + 1)))
    assert History(path).older("") == str(2 * MAX_ENTRIES)
    assert len(path.read_text().splitlines()) == MAX_ENTRIES
