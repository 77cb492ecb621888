"""An engine that is faster than the screen."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from ds4chat.demo import TOUR, ScriptedEngine
from ds4chat.protocol.commands import Load
from ds4chat.protocol.events import Notice
from ds4chat.tui import app as app_module
from ds4chat.tui.app import MAX_WAITING, Ds4ChatApp
from ds4chat.tui.bridge import EngineReported
from ds4chat.tui.options import ChatOptions

EVENT = Notice(turn_id=None, level="info", message="")
MANY = 1_000_000


@pytest.fixture
def has_paused(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the engine's thread was let wait."""
    paused = threading.Event()
    monkeypatch.setattr(app_module, "time", SimpleNamespace(sleep=lambda _: paused.set()))
    return paused


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Ds4ChatApp:
    link = ScriptedEngine(TOUR)
    monkeypatch.setattr(link, "start", lambda _emit: None)
    return Ds4ChatApp(link, Load(request_id=0, model_path=""), ChatOptions())


async def test_it_waits_for_a_screen_that_is_behind(
    app: Ds4ChatApp, has_paused: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go = asyncio.Event()
    n_taken = n_told = 0

    async def take(_app: Ds4ChatApp, _message: EngineReported) -> None:
        nonlocal n_taken
        await may_go.wait()
        n_taken += 1

    def tell() -> None:
        nonlocal n_told
        while not has_paused.is_set() and n_told < MANY:
            app._emit(EVENT)
            n_told += 1

    monkeypatch.setattr(Ds4ChatApp, "on_engine_reported", take)
    async with app.run_test():
        engine = threading.Thread(target=tell)
        engine.start()
        await asyncio.to_thread(engine.join)
        assert has_paused.is_set()
        may_go.set()
        async with asyncio.timeout(120):
            while n_taken < n_told:
                await asyncio.sleep(0)


async def test_it_does_not_wait_for_a_screen_that_is_gone(
    app: Ds4ChatApp, has_paused: threading.Event
) -> None:
    async with app.run_test():
        pass
    for _ in range(2 * MAX_WAITING):
        app._message_queue.put_nowait(EngineReported(EVENT))
    engine = threading.Thread(target=app._emit, args=(EVENT,))
    engine.start()
    await asyncio.to_thread(engine.join)
    assert not has_paused.is_set()
