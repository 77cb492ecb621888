from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.store import snapshots, transcripts
from ds4chat.store.library import Library
from ds4chat.store.records import SnapshotSaved
from ds4chat.store.session import Session
from tests.unit.store import build

IDS = [5, 6, 7, 8, 129_279]


def record(name: str, ids: list[int], turn_id: int | None = None) -> SnapshotSaved:
    return SnapshotSaved(
        name=name, n_tokens=len(ids), token_hash=snapshots.token_hash(ids), turn_id=turn_id
    )


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Library(tmp_path, clock=build.clock()).create("a")


def put(session: Session, name: str, *files: str) -> None:
    """A snapshot on the disk: a manifest that lists data files."""
    session.snapshots_dir.mkdir(exist_ok=True)
    links = [{"file": file} for file in files]
    (session.snapshots_dir / f"{name}.json").write_text(json.dumps({"links": links}))
    for file in files:
        (session.snapshots_dir / file).write_text("data")


def data(n: int) -> str:
    return f"{n:032x}.safetensors"


def left(session: Session) -> list[str]:
    return sorted(path.name for path in session.snapshots_dir.iterdir())


def test_the_hash_is_that_of_little_endian_words() -> None:
    wanted = hashlib.sha256(struct.pack("<5i", *IDS)).hexdigest()
    assert snapshots.token_hash(IDS) == wanted


def test_the_newest_prefix_wins() -> None:
    kept = [record("a", IDS[:4]), record("b", IDS[:2]), record("c", [5, 9])]
    assert snapshots.pick(kept, IDS) == kept[1]
    assert snapshots.pick(kept[:1], IDS) == kept[0]
    assert snapshots.pick(kept[:1], IDS[:3]) is None
    assert snapshots.pick([], IDS) is None
    assert snapshots.pick([record("e", [])], IDS) is None


def test_a_recorded_snapshot_that_is_not_there_is_not_picked(session: Session) -> None:
    session.snapshot_saved(record("a", IDS[:2]))
    session.snapshot_saved(record("b", IDS[:3]))
    put(session, "a")
    found = session.pick_snapshot(IDS)
    assert found is not None
    assert found.name == "a"
    assert snapshots.missing(session.folder, session.tree) == ["b"]


def test_candidates_lie_on_the_current_branch(session: Session) -> None:
    build.say(session, "one")
    session.snapshot_saved(record("system", IDS[:1], None))
    session.snapshot_saved(record("first", IDS[:2], 1))
    build.say(session, "two")
    session.snapshot_saved(record("second", IDS[:3], 2))
    assert [r.name for r in snapshots.candidates(session.tree)] == ["second", "first", "system"]
    session.fork(1)
    assert [r.name for r in snapshots.candidates(session.tree)] == ["first", "system"]


def test_orphans_are_what_no_recorded_snapshot_needs(session: Session) -> None:
    put(session, "kept", data(1), data(2))
    put(session, "gone", data(2), data(3))
    for extra in (data(4), "kept.json.tmp", "notes.txt"):
        (session.snapshots_dir / extra).write_text("")
    session.snapshot_saved(record("kept", IDS[:2]))
    session.snapshot_saved(record("gone", IDS[:3]))
    session.drop_snapshots(["gone"], "merged")
    assert left(session) == sorted([data(1), data(2), "kept.json", "notes.txt"])
    assert list(session.tree.snapshots) == ["kept"]


@pytest.mark.parametrize("manifest", ["", "[]", '{"links": 5}', '{"links": [{}]}'])
def test_data_stays_while_a_kept_manifest_cannot_be_read(
    session: Session, manifest: str
) -> None:
    put(session, "kept", data(1))
    (session.snapshots_dir / "kept.json").write_text(manifest)
    session.snapshot_saved(record("kept", IDS))
    session.drop_snapshots([], "orphan")
    assert left(session) == [data(1), "kept.json"]


def test_the_records_survive_and_the_newest_stands_last(session: Session) -> None:
    for name in ("a", "b", "a"):
        session.snapshot_saved(record(name, IDS[:2]))
    session.close()
    tree = transcripts.read(session.folder / transcripts.FILE_NAME).tree
    assert list(tree.snapshots) == ["b", "a"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.json", "-x", "x" * 65, "é", "a\n"])
def test_snapshot_names_are_checked(session: Session, name: str) -> None:
    with pytest.raises(SessionFileError, match="cannot name a snapshot"):
        session.snapshot_saved(record(name, IDS))


def test_a_full_disk_does_not_keep_strip_from_making_room(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(session, "a", data(1))
    session.snapshot_saved(record("a", IDS))
    room = session.snapshots_dir / data(1)
    write = session._ops.write

    def full(fd: int, piece: bytes) -> int:
        if room.exists():
            raise OSError(28, "No space left on device")
        return write(fd, piece)

    monkeypatch.setattr(session._ops, "write", full)
    assert session.drop_snapshots() > 0
    assert session.n_unwritten == 0
    assert session.tree.snapshots == {}
