"""The way out of the full screen."""

from __future__ import annotations

import signal

import pytest

from ds4chat import settings
from ds4chat.cli import chat, keep, start
from ds4chat.demo import TOUR, ScriptedEngine
from ds4chat.tui.app import Ds4ChatApp


class Closed(ScriptedEngine):
    """A scripted engine during whose end a person presses Ctrl+C."""

    n_closed = 0

    def close(self) -> None:
        signal.raise_signal(signal.SIGINT)
        self.n_closed += 1


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda s: s.name
)
def test_a_signal_while_it_leaves_breaks_off_nothing(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[object] = []

    async def leave_at_once(_app: object) -> None:
        pass

    def finish(*_words: object) -> None:
        signal.raise_signal(number)
        finished.append(None)

    monkeypatch.setattr(Ds4ChatApp, "run_async", leave_at_once)
    monkeypatch.setattr(keep, "finish", finish)
    values = settings.load({})
    link = Closed(TOUR)
    assert chat.open_chat(link, start.make(values, None), values, None) == 0
    assert link.n_closed == len(finished) == 1


def test_the_session_is_finished_though_the_screen_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished: list[object] = []

    async def fail(_app: object) -> None:
        raise OSError("the terminal is gone")

    monkeypatch.setattr(Ds4ChatApp, "run_async", fail)
    monkeypatch.setattr(keep, "finish", lambda *_: finished.append(None))
    values = settings.load({})
    with pytest.raises(OSError, match="the terminal is gone"):
        chat.open_chat(ScriptedEngine(TOUR), start.make(values, None), values, None)
    assert len(finished) == 1
