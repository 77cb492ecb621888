"""A disk that fails, a process that is killed, and what is cleaned up after both."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.snapshot_files import clean, remove, scan
from ds4chat.engine.snapshots import take, write
from ds4chat.errors import SnapshotError
from tests.engines import (
    SMALL,
    differing,
    differing_states,
    open_pair,
    spec_tokens,
)
from tests.unit.engine.broken_disk import failing
from tests.unit.engine.saving import DISK, assert_continues, prompted, restored, saved


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL) as opened:
        yield opened


@pytest.fixture(scope="module")
def chain(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two snapshots, `old` and `new`, the second one continuing the first."""
    folder = tmp_path_factory.mktemp("chain") / "snapshots"
    session = prompted(engine)
    saved(engine, session, folder, "old")
    spec_tokens(session, 15)
    saved(engine, session, folder, "new")
    return folder


@pytest.fixture
def copied(chain: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "snapshots"
    shutil.copytree(chain, folder)
    return folder


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_failing_disk_costs_the_snapshot_only(
    engine: Engine, tmp_path: Path, number: int
) -> None:
    session, folder = prompted(engine), tmp_path / "snapshots"
    saved(engine, session, folder, "old")
    spec_tokens(session, 9)
    data, names, at = take(engine, session, folder), set(folder.iterdir()), 0
    while True:
        disk = failing(at, number)
        try:
            write(data, "new", disk)
        except SnapshotError as error:
            assert "cannot be written" in error.message
            assert error.hint
        if disk.count <= at:
            break
        assert not list(folder.glob("*.tmp"))
        last = restored(engine, folder, "old")
        if (folder / "new.json").exists():  # only the last sync was refused
            assert differing(restored(engine, folder, "new"), session) == []
        else:
            clean(folder, DISK)
            assert set(folder.iterdir()) == names
        at += 1
    assert {"create", "write", "sync", "close", "rename", "sync_folder"} < set(disk.steps)
    assert at == len(disk.steps)
    assert last.n == 140
    assert_continues(session, restored(engine, folder, "new"))


def test_a_folder_that_vanished(engine: Engine, tmp_path: Path) -> None:
    session, home = prompted(engine), tmp_path / "session"
    home.mkdir()
    saved(engine, session, home / "snapshots", "old")
    spec_tokens(session, 5)
    data = take(engine, session, home / "snapshots")
    assert data.base.name == "old"
    shutil.rmtree(home / "snapshots")
    with pytest.raises(SnapshotError, match="gone"):
        write(data, "new", DISK)
    assert saved(engine, session, home / "snapshots", "new").parent == ""
    shutil.rmtree(home)
    with pytest.raises(SnapshotError, match="gone"):
        saved(engine, session, home / "snapshots", "newer")
    spec_tokens(session, 5)


@pytest.mark.parametrize("name", ["old", "new"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new(
    engine: Engine, tmp_path: Path, name: str
) -> None:
    session, folder = prompted(engine), tmp_path / "snapshots"
    saved(engine, session, folder, "old")
    before = session.state()
    spec_tokens(session, 9)
    data = take(engine, session, folder)
    shutil.copytree(folder, tmp_path / "whole")
    done = write(replace(data, folder=tmp_path / "whole"), name, DISK)
    job = {
        "folder": str(folder),
        "out": str(tmp_path / "kills"),
        "name": name,
        "data": str(tmp_path / "whole" / done.links[-1].file),
        "manifest": str(tmp_path / "whole" / f"{name}.json"),
        "n": done.n,
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    program = [
        sys.executable,
        "-m",
        "tests.unit.engine.broken_disk",
        str(tmp_path / "job.json"),
    ]
    n_kills = int(subprocess.check_output(program))
    kills = sorted((tmp_path / "kills").iterdir())
    assert n_kills == len(kills) - 1 >= 30
    seen = set()
    for killed in kills:
        clean(killed, DISK)
        found = scan(killed)
        assert found.problems == {}
        files = {path.name for path in killed.iterdir()}
        assert files == found.in_use | {f"{n}.json" for n in found.manifests}
        last = name if name in found.manifests else "old"
        state = restored(engine, killed, last).state()
        is_new = int(state["n"]) == session.n
        seen.add(is_new)
        assert differing_states(state, session.state() if is_new else before) == []
    assert seen == {False, True}


def test_clean_removes_what_nothing_lists(copied: Path) -> None:
    kept = sorted(path.name for path in copied.iterdir())
    orphans = [f"{'0' * 32}.safetensors", "new.data.tmp", "new.json.tmp"]
    for name in orphans:
        (copied / name).write_bytes(b"x")
    (copied / "mine.txt").write_bytes(b"not ours")
    assert sorted(clean(copied, DISK)) == sorted(orphans)
    assert sorted(path.name for path in copied.iterdir()) == sorted([*kept, "mine.txt"])


def test_clean_keeps_data_that_a_later_version_may_list(copied: Path) -> None:
    orphan = copied / f"{'0' * 32}.safetensors"
    orphan.write_bytes(b"x")
    body = json.loads((copied / "new.json").read_bytes())
    (copied / "future.json").write_text(json.dumps({**body, "format": 2}))
    assert clean(copied, DISK) == ()
    assert orphan.exists()
    assert set(scan(copied).problems) == {"future"}


def test_remove_keeps_what_others_use(engine: Engine, copied: Path) -> None:
    remove(copied, ["old"], DISK)
    assert set(scan(copied).manifests) == {"new"}
    restored(engine, copied, "new")
    remove(copied, ["new"], DISK)
    assert list(copied.iterdir()) == []
    assert scan(copied / "nowhere").manifests == {}
