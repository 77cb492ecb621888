from __future__ import annotations

import os
from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import ThinkMode
from ds4chat.store import summary, transcripts
from ds4chat.store.library import Library
from ds4chat.store.names import resume_command
from ds4chat.store.records import OptionsSet, SnapshotSaved
from ds4chat.store.session import Session
from tests.unit.store import build
from tests.unit.store.test_names import HOSTILE


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "sessions", clock=build.clock())


def make(library: Library, name: str, *questions: str) -> Session:
    session = library.create(name)
    for question in questions:
        build.say(session, question)
    session.close()
    return session


def age(library: Library, name: str, seconds: int) -> None:
    os.utime(library.path(name) / transcripts.FILE_NAME, (seconds, seconds))


def add_kv(session: Session, name: str, n_bytes: int) -> None:
    session.snapshots_dir.mkdir(exist_ok=True)
    (session.snapshots_dir / f"{name}.json").write_bytes(b"\0" * n_bytes)
    session.snapshot_saved(SnapshotSaved(name=name, n_tokens=1, token_hash="x"))


def test_everything_is_private_whatever_the_umask(library: Library) -> None:
    old = os.umask(0)
    try:
        session = make(library, "a", "hello")
    finally:
        os.umask(old)
    assert library.root.stat().st_mode & 0o777 == 0o700
    assert session.folder.stat().st_mode & 0o777 == 0o700
    for path in session.folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_session_opened_again_is_made_private(library: Library) -> None:
    session = make(library, "a", "hello")
    session.folder.chmod(0o755)
    (session.folder / transcripts.FILE_NAME).chmod(0o644)
    library.open("a").close()
    assert session.folder.stat().st_mode & 0o777 == 0o700
    assert (session.folder / transcripts.FILE_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != ""])
def test_no_name_leads_out_of_the_folder(library: Library, tmp_path: Path, name: str) -> None:
    make(library, "a", "hello")
    outside = tmp_path / "x"
    outside.mkdir()
    (outside / transcripts.FILE_NAME).write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    for attempt in (
        lambda: library.create(name),
        lambda: library.open(name),
        lambda: library.read(name),
        lambda: library.delete(name),
        lambda: library.undelete(name),
        lambda: library.strip(name),
        lambda: library.rename(name, "b"),
        lambda: library.rename("a", name),
        lambda: library.path(name),
    ):
        with pytest.raises(SessionFileError):
            attempt()
    assert sorted(tmp_path.rglob("*")) == before
    assert (outside / transcripts.FILE_NAME).read_text() == "precious"


def test_a_name_is_made_from_the_day_and_the_question(library: Library) -> None:
    for wanted in ("2026-07-31-why-is-it-so", "2026-07-31-why-is-it-so-2"):
        session = library.create(about="Why is it so?\n\nPlease tell.")
        assert session.name == wanted


@pytest.mark.parametrize("taken", ["a", "A"])
def test_a_taken_name_is_refused(library: Library, taken: str) -> None:
    make(library, "a")
    make(library, "b")
    for attempt in (lambda: library.create(taken), lambda: library.rename("b", taken)):
        with pytest.raises(SessionFileError, match="there is a session 'a' already"):
            attempt()


def test_a_missing_session_names_the_nearest(library: Library) -> None:
    make(library, "quicksort")
    with pytest.raises(SessionFileError, match="no session 'quiksort'") as caught:
        library.open("quiksort")
    assert "quicksort" in caught.value.hint


def test_links_are_not_followed(library: Library, tmp_path: Path) -> None:
    outside = make(Library(tmp_path / "other"), "real", "secret").folder
    make(library, "a", "hello")
    (library.root / "link").symlink_to(outside)
    with pytest.raises(SessionFileError, match="symbolic link"):
        library.open("link")
    assert library.names() == ["a"]
    transcript = library.path("a") / transcripts.FILE_NAME
    transcript.unlink()
    transcript.symlink_to(outside / transcripts.FILE_NAME)
    with pytest.raises(SessionFileError, match=r"not followed|link"):
        library.open("a")
    assert library.summaries()[0].trouble.startswith("no transcript")


def test_stripping_removes_links_and_not_what_they_name(
    library: Library, tmp_path: Path
) -> None:
    session = library.create("a")
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_text("kept")
    session.snapshots_dir.mkdir()
    (session.snapshots_dir / "link").symlink_to(outside)
    session.drop_snapshots()
    assert list(session.snapshots_dir.iterdir()) == []
    session.snapshots_dir.rmdir()
    session.snapshots_dir.symlink_to(outside)
    session.drop_snapshots()
    assert not session.snapshots_dir.is_symlink()
    assert (outside / "file").read_text() == "kept"


def test_the_list_tells_size_turns_model_age_and_preview(library: Library) -> None:
    session = library.create("a")
    session.set_options(OptionsSet(model=build.SCRIPT.info))
    build.say(session, "What is\n\n42?\x1b[31m")
    build.say(session, "And then?")
    add_kv(session, "s1", 1000)
    session.close()
    age(library, "a", 1_000_000)
    (found,) = library.summaries()
    assert (found.name, found.n_turns, found.kv_bytes, found.changed_s) == ("a", 2, 1000, 1e6)
    assert found.text_bytes == (session.folder / transcripts.FILE_NAME).stat().st_size
    assert found.model == "scripted (not a model) none"
    assert (found.first, found.last) == ("What is 42?\ufffd[31m", "And then?")


def test_the_one_used_last_comes_first(library: Library) -> None:
    for name, seconds in (("old", 10), ("new", 30), ("mid", 20)):
        make(library, name)
        age(library, name, seconds)
    assert [s.name for s in library.summaries()] == ["new", "mid", "old"]
    assert library.latest() == "new"
    assert Library(library.root / "nowhere").latest() is None


def test_listing_reads_only_the_two_ends(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = library.create("a")
    build.say(session, "first " * 30_000)
    build.say(session, "middle", "word " * 40_000)
    build.say(session, "last")
    session.close()
    n_read = 0
    pread = os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        nonlocal n_read
        found = pread(fd, size, offset)
        n_read += len(found)
        return found

    monkeypatch.setattr(os, "pread", counting)
    (found,) = library.summaries()
    assert found.n_turns == 3
    assert found.first.startswith("first first")
    assert found.last == "last"
    assert found.text_bytes > 20 * summary.WINDOW_BYTES
    assert n_read <= 2 * summary.WINDOW_BYTES


def test_a_long_reply_that_was_cut_off_hides_no_turns(library: Library) -> None:
    session = make(library, "a", "first", "second")
    session = library.open("a")
    turn = session.ask("last", ThinkMode.OFF)
    while (session.folder / transcripts.FILE_NAME).stat().st_size < 3 * summary.WINDOW_BYTES:
        session.report(build.tokens(turn.id, "word " * 200))
    (found,) = library.summaries()
    assert (found.n_turns, found.last) == (3, "last")
    session.close()


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 100, b"[]\n", b'{"kind":"session","version":7}\n']
)
def test_what_cannot_be_opened_is_listed_with_the_reason(library: Library, data: bytes) -> None:
    make(library, "good")
    bad = library.root / "bad"
    bad.mkdir()
    (bad / transcripts.FILE_NAME).write_bytes(data)
    found = {s.name: s.trouble for s in library.summaries()}
    assert found["good"] == ""
    assert found["bad"]
    assert library.latest() == "good"


def test_rename_takes_the_session_along(library: Library) -> None:
    make(library, "a", "hello")
    age(library, "a", 5_000)
    assert library.rename("a", "Größe") == "Größe"
    assert library.names() == ["Größe"]
    assert library.summaries()[0].changed_s == 5_000
    assert library.rename("Größe", "größe") == "größe"
    assert library.read("größe").tree.turns[1].question == "hello"


def test_an_open_session_is_renamed_by_its_window_only(library: Library) -> None:
    session = library.create("a")
    with pytest.raises(SessionFileError, match="open in another window"):
        library.rename("a", "b")
    library.rename("a", "b", session)
    build.say(session, "after")
    assert session.name == "b"
    session.close()
    assert library.read("b").tree.turns[1].question == "after"
    assert sorted(path.name for path in (library.root / "b").iterdir()) == ["transcript.jsonl"]


def test_a_deleted_session_comes_back(library: Library) -> None:
    make(library, "a", "first life")
    library.delete("a")
    assert library.names() == []
    make(library, "a", "second life")
    library.delete("a")
    assert library.trash.names() == ["a", "a"]
    assert library.undelete("a") == "a"
    assert library.read("a").tree.turns[1].question == "second life"
    with pytest.raises(SessionFileError, match="already"):
        library.undelete("a")
    library.rename("a", "b")
    library.undelete("a")
    assert library.read("a").tree.turns[1].question == "first life"
    with pytest.raises(SessionFileError, match="no deleted session"):
        library.undelete("never")


def test_an_open_session_is_not_deleted(library: Library) -> None:
    session = library.create("a")
    with pytest.raises(SessionFileError, match="open in another window"):
        library.delete("a")
    build.say(session, "on")
    session.close()
    library.delete("a")


def test_a_damaged_session_can_be_deleted(library: Library) -> None:
    bad = library.root / "bad"
    bad.mkdir(parents=True)
    (bad / transcripts.FILE_NAME).write_bytes(b"\0")
    library.delete("bad")
    assert library.names() == []


def test_the_trash_is_purged_by_age(library: Library) -> None:
    make(library, "old")
    make(library, "new")
    library.delete("old")
    library.delete("new")
    (library.root / ".new-123").mkdir()
    for place in (library.root / ".trash" / "000001~old", library.root / ".new-123"):
        os.utime(place, (1000, 1000))
    os.utime(library.root / ".trash" / "000002~new", (9000, 9000))
    library.tidy(older_than_s=5000, now_s=10_000)
    assert library.trash.names() == ["new"]
    assert not (library.root / ".new-123").exists()


def test_strip_drops_the_kv_and_keeps_the_text(library: Library) -> None:
    session = library.create("a")
    build.say(session, "hello")
    add_kv(session, "s1", 700)
    (session.snapshots_dir / ("0" * 32 + ".safetensors")).write_bytes(b"\0" * 300)
    session.close()
    age(library, "a", 5_000)
    assert library.strip("a") == 1000
    found = library.read("a")
    assert found.tree.snapshots == {}
    assert found.tree.turns[1].question == "hello"
    assert library.summaries()[0].changed_s == 5_000
    assert library.strip("a") == 0


def test_the_budget_drops_the_oldest_kv_first_and_text_never(library: Library) -> None:
    for name, seconds in (("oldest", 10), ("open", 20), ("kept", 30), ("old", 40), ("new", 50)):
        session = library.create(name)
        build.say(session, "text")
        add_kv(session, "s", 100)
        if name != "open":
            session.close()
        age(library, name, seconds)
    assert library.keep_budget(500) == {}
    assert library.keep_budget(450) == {"oldest": 100}
    assert library.keep_budget(350, keep=frozenset({"kept"})) == {"old": 100}
    assert library.keep_budget(0, keep=frozenset({"kept"})) == {"new": 100}
    for name in library.names():
        assert library.read(name).tree.turns[1].question == "text"


def test_a_second_window_reads_and_sees_who_writes(library: Library) -> None:
    first = library.create("a")
    build.say(first, "mine")
    second = library.open("a")
    assert second.is_read_only
    assert second.owner is not None
    assert second.owner.pid == os.getpid()
    assert second.messages() == first.messages()
    with pytest.raises(SessionFileError, match=str(os.getpid())):
        second.ask("theirs", ThinkMode.OFF)
    first.close()
    assert not library.open("a").is_read_only


def test_reading_writes_nothing(library: Library) -> None:
    session = make(library, "a", "hello")
    before = {path: path.stat().st_mtime_ns for path in library.root.rglob("*")}
    found = library.read("a")
    assert found.is_read_only
    assert found.owner is None
    assert list(library.search("hello"))
    library.summaries()
    assert {path: path.stat().st_mtime_ns for path in library.root.rglob("*")} == before
    assert session.folder in before


def test_a_newer_format_is_left_untouched(library: Library) -> None:
    session = make(library, "a", "hello")
    path = session.folder / transcripts.FILE_NAME
    path.write_bytes(b'{"kind":"session","version":2,"hash":"x"}\n')
    for attempt in (library.open, library.read, library.strip):
        with pytest.raises(SessionFileError, match="format 2"):
            attempt("a")
    assert sorted(p.name for p in session.folder.iterdir()) == [transcripts.FILE_NAME]


def test_search_finds_what_was_said(library: Library) -> None:
    make(library, "a", "the Quick fox")
    session = library.create("b")
    build.talk(session, "sum", ThinkMode.HIGH)
    session.close()
    (library.root / "bad").mkdir()
    found = [(name, hit.turn_id, hit.who) for name, hit in library.search("FOUR")]
    assert found == [("b", 1, "reasoning"), ("b", 1, "answer")]
    ((name, hit),) = library.search("quick")
    assert (name, hit.who, hit.excerpt) == ("a", "you", "the Quick fox")
    assert list(library.search("")) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionFileError, match="cannot be created"):
        Library(tmp_path / "file" / "sessions").create("a")
    with pytest.raises(SessionFileError, match="cannot be listed"):
        Library(tmp_path / "file").names()


def test_the_resume_command_survives_a_shell() -> None:
    assert resume_command("a") == "ds4chat -r a"
    assert resume_command("it's", Path("/my dir")) == (
        "ds4chat -r 'it'\"'\"'s' --sessions '/my dir'"
    )


def test_a_folder_that_is_made_while_it_is_looked_for_is_read(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two windows begin at once: one looks, the other makes it, the first looks again."""
    scan = os.scandir

    def late(path: Path) -> object:
        monkeypatch.setattr(os, "scandir", scan)
        make(library, "theirs", "Hi")
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(os, "scandir", late)
    assert library.names() == ["theirs"]
