"""Saving and restoring sessions of tiny engines, for tests."""

from __future__ import annotations

from pathlib import Path

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from ds4chat.engine.snapshot_chain import Manifest
from ds4chat.engine.snapshot_files import DiskFiles
from ds4chat.engine.snapshots import restore, take, write
from tests.engines import differing, random_ids, spec_tokens

DISK = DiskFiles()


def prompted(engine: Engine, n: int = 140, **sampling: float) -> Session:
    session = engine.session(**sampling)  # type: ignore[arg-type]
    session.sync(random_ids(engine, n))
    return session


def saved(engine: Engine, session: Session, folder: Path, name: str) -> Manifest:
    return write(take(engine, session, folder), name, DISK)


def restored(engine: Engine, folder: Path, name: str) -> Session:
    found = restore(engine, folder, name)
    assert found.notices == ()
    return found.session


def assert_continues(one: Session, two: Session, n: int = 30) -> None:
    """The same state, and the same text and state ever after."""
    assert differing(one, two) == []
    two.poison()
    assert spec_tokens(one, n) == spec_tokens(two, n)
    assert differing(one, two) == []
