"""What is recorded of a chat while the folder of its session is still being made."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ds4chat.protocol.types import FinishReason, ThinkMode
from ds4chat.store import moves
from ds4chat.store.library import Library
from ds4chat.store.session import Session
from ds4chat.tui.sessions_hook import SessionsPlan
from ds4chat.tui.sessions_recording import DiskReports, SessionRecorder
from tests.unit.tui.desk import Desk


def test_an_engine_that_dies_before_the_session_is_made_ends_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_make = threading.Event()
    create = Library.create

    def slowly(library: Library, name: str = "", *, about: str = "") -> Session:
        may_make.wait()
        return create(library, name, about=about)

    monkeypatch.setattr(Library, "create", slowly)
    heard = DiskReports(on_trouble=lambda _: None, on_made=lambda: None)
    plan = SessionsPlan(root=tmp_path, is_usual=False)
    recorder = SessionRecorder(Desk().chat, plan, heard)
    recorder.record(moves.ask(recorder.tree, "one", ThinkMode.OFF))
    recorder.save_soon()
    recorder.break_off("the engine was killed")
    may_make.set()
    recorder.settle()
    recorder.record(moves.ask(recorder.tree, "two", ThinkMode.OFF))
    name = recorder.close()
    first, second = Library(tmp_path).read(name).tree.path()
    assert (first.question, second.question) == ("one", "two")
    assert first.reason is FinishReason.ERROR
    assert first.finished is not None
    assert first.finished.message == "the engine was killed"
