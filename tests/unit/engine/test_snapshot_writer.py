"""The writer's thread: order, callbacks, failures; the engine's thread never waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.snapshot_files import DiskFiles, scan
from ds4chat.engine.snapshot_writer import MAX_WAITING, Outcome, SnapshotWriter
from ds4chat.engine.snapshots import take
from tests.engines import SMALL, open_pair, spec_tokens
from tests.unit.engine.broken_disk import failing
from tests.unit.engine.saving import assert_continues, prompted, restored


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL) as opened:
        yield opened


class StuckDisk(DiskFiles):
    """Waits before every new file until it is let go."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_waiting = threading.Event()

    def create(self, path: Path) -> int:
        self.is_waiting.set()
        assert self.is_free.wait(120)
        return super().create(path)


def test_saves_are_written_in_order_and_reported(engine: Engine, tmp_path: Path) -> None:
    session, outcomes, threads = prompted(engine), list[Outcome](), set[str]()

    def note(outcome: Outcome) -> None:
        assert outcome.name in scan(tmp_path).manifests
        threads.add(threading.current_thread().name)
        outcomes.append(outcome)

    writer = SnapshotWriter()
    for name in ("a", "b", "c"):
        writer.save(take(engine, session, tmp_path), name, note)
        spec_tokens(session, 6)
        writer.wait()
    writer.close()
    writer.close()
    assert [o.name for o in outcomes] == ["a", "b", "c"]
    assert all(o.error is None and o.seconds > 0 for o in outcomes)
    assert [len(o.manifest.links) for o in outcomes if o.manifest] == [1, 2, 3]
    assert threads == {"snapshots"}


def test_the_session_goes_on_while_the_disk_is_stuck(engine: Engine, tmp_path: Path) -> None:
    session, outcomes, disk = prompted(engine), list[Outcome](), StuckDisk()
    writer = SnapshotWriter(disk)
    writer.save(take(engine, session, tmp_path), "a", outcomes.append)
    assert disk.is_waiting.wait(120)
    spec_tokens(session, 6)
    later = take(engine, session, tmp_path)
    assert later.base.links == ()  # "a" is not on the disk yet
    writer.save(later, "b", outcomes.append)
    assert outcomes == []
    spec_tokens(session, 6)
    disk.is_free.set()
    writer.close()
    assert [o.error for o in outcomes] == [None, None]
    spec_tokens(restored(engine, tmp_path, "a"), 6)
    back = restored(engine, tmp_path, "b")
    spec_tokens(back, 6)
    assert_continues(session, back)


def test_too_many_waiting_snapshots_are_left_out_with_a_reason(
    engine: Engine, tmp_path: Path
) -> None:
    session, outcomes, disk = prompted(engine), list[Outcome](), StuckDisk()
    writer = SnapshotWriter(disk)
    data = take(engine, session, tmp_path)
    writer.save(data, "first", outcomes.append)
    assert disk.is_waiting.wait(120)
    for i in range(MAX_WAITING + 1):
        writer.save(data, f"s{i}", outcomes.append)
    (left_out,) = outcomes
    assert left_out.name == f"s{MAX_WAITING}"
    assert left_out.error is not None
    assert "wait for the disk" in left_out.error.message
    disk.is_free.set()
    writer.close()
    assert len(outcomes) == MAX_WAITING + 2


def test_failures_are_reported_and_the_thread_lives_on(engine: Engine, tmp_path: Path) -> None:
    session, outcomes = prompted(engine), list[Outcome]()
    writer = SnapshotWriter(failing(3))
    data = take(engine, session, tmp_path)
    writer.save(data, "a", outcomes.append)
    writer.save(data, "../b", outcomes.append)
    writer.save(data, "c", outcomes.append)
    writer.close()
    messages = [o.error.message if o.error else "" for o in outcomes]
    assert "the disk is full" in messages[0]
    assert "cannot be used" in messages[1]
    assert messages[2] == ""
    assert outcomes[2].manifest is not None


def test_removing_and_cleaning_wait_for_saves(engine: Engine, tmp_path: Path) -> None:
    session, outcomes = prompted(engine), list[Outcome]()
    writer = SnapshotWriter()
    (tmp_path / "x.data.tmp").write_bytes(b"x")
    writer.save(take(engine, session, tmp_path), "a", outcomes.append)
    writer.clean(tmp_path, outcomes.append)
    writer.wait()
    assert len(list(tmp_path.iterdir())) == 2
    writer.remove(tmp_path, ["a"], outcomes.append)
    writer.close()
    assert list(tmp_path.iterdir()) == []
    assert [o.error for o in outcomes] == [None] * 3
