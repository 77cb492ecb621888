"""Leaving at any moment and from any screen: soon gone, the terminal as it was, text kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.tui import commands
from ds4chat.tui.controller import Phase
from ds4chat.tui.screens.chat import ChatScreen
from tests.cycles.plan import Act, Moment, Plan
from tests.cycles.run import Cycles
from tests.cycles.screen_cycle import CTRL_Q, Screen, modes_left
from tests.pilot.driver import run_chat
from tests.pilot.keeping import LONG, kept, on_disk

NEEDS_PROC = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs /proc to see what is left"
)
ENDS_WITHIN_S = 60  # a hang is longer; the cycles ask for far less


@pytest.fixture(scope="module")
def cycles(tmp_path_factory: pytest.TempPathFactory) -> Cycles:
    return Cycles(tmp_path_factory.mktemp("cycles"))


def quitting(moment: Moment, n_before: int = 0) -> Plan:
    question = "a long prompt " * 200 if moment is Moment.PREFILL else "tell me"
    return Plan(
        seed=0, on_screen=True, moment=moment, act=Act.QUIT, delay_s=0.02, n_tokens=4,
        question=question, n_before=n_before, goes_on=moment is Moment.STREAM,
    )  # fmt: skip


@NEEDS_PROC
@pytest.mark.parametrize(
    "moment",
    [
        Moment.SAVE,
        pytest.param(Moment.LOAD, marks=pytest.mark.slow),
        pytest.param(Moment.PREFILL, marks=pytest.mark.slow),
        pytest.param(Moment.STREAM, marks=pytest.mark.slow),
        pytest.param(Moment.START, marks=pytest.mark.slow),
        pytest.param(Moment.QUIT, marks=pytest.mark.slow),
    ],
)
def test_quitting_with_a_real_engine(cycles: Cycles, moment: Moment) -> None:
    """No process, claim or mode of the terminal is left; the session is whole."""
    assert cycles.run(quitting(moment)) == ""


SCREENS = ("settings", "sessions", "help", "keys", "race")


@pytest.mark.parametrize("is_busy", [True, False])
@pytest.mark.parametrize(
    "name", [SCREENS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in SCREENS[1:])]
)
async def test_the_quit_key_leaves_from_every_screen(
    name: str, is_busy: bool, tmp_path: Path
) -> None:
    reply = Reply(answer=LONG, holds=(3,) if is_busy else ())
    async with run_chat(
        reply, Reply(answer="x"), options=kept(tmp_path), size=(100, 40)
    ) as chat:
        await chat.send("go")
        if is_busy:
            await chat.steps(3)
        else:
            await chat.until(lambda: chat.chat.conversation.turns and not chat.chat.is_busy)
        text = chat.chat.conversation.turns[0].answer_text
        if name == "sessions":
            chat.screen.action_sessions()
        else:
            commands.execute(chat.screen, name, "")
        if is_busy:
            await chat.pilot.pause()
        else:
            await chat.until(lambda: not isinstance(chat.app.screen, ChatScreen))
        await chat.press("ctrl+q")
        await chat.until(lambda: chat.app._exit)
        assert not chat.engine.is_alive
        desk = chat.screen.sessions
        assert desk is not None
        session = desk.close()
    (turn,) = on_disk(tmp_path, session).path()
    assert turn.answer_text.startswith(text)
    assert turn.finished is not None


@pytest.mark.parametrize("phase", [Phase.DEAD, Phase.REFUSED, Phase.LOADING])
async def test_it_leaves_whatever_the_engine_is_at(phase: Phase) -> None:
    script = Script(
        replies=(Reply(answer=LONG, crash_after=1),), is_load_held=phase is Phase.LOADING
    )
    async with run_chat(script=script, is_ready=False) as chat:
        if phase is Phase.DEAD:
            await chat.phase(Phase.READY)
            await chat.send("go")
        if phase is Phase.REFUSED:
            await chat.phase(Phase.READY)
            chat.chat.phase = Phase.REFUSED
        await chat.phase(phase)
        await chat.press("ctrl+c", "ctrl+c", "ctrl+q")
        await chat.until(lambda: chat.app._exit)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    model = tmp_path / "scripted.gguf"
    model.touch()
    made = Screen("tests.scripted_chat", str(model), "--sessions", str(tmp_path / "s"))
    made.until_shown("scripted")
    yield made
    made.kill()


@pytest.mark.parametrize(
    "trouble", ["raise", *(pytest.param(t, marks=pytest.mark.slow) for t in ("crash", "nan"))]
)
def test_trouble_in_the_engine_leaves_a_screen_that_can_be_left(
    screen: Screen, trouble: str
) -> None:
    words = {"crash": "F8", "raise": "the device is lost", "nan": "broken off"}[trouble]
    screen.write(f"{trouble}\r")
    screen.until_shown(words)
    screen.write(CTRL_Q)
    assert screen.status_within(ENDS_WITHIN_S) == 0
    assert modes_left(screen.raw) == []


@pytest.mark.slow
def test_many_quit_keys_and_a_signal_are_one_end(screen: Screen) -> None:
    screen.write("endless\r")
    screen.until_shown("goes home")
    screen.write(CTRL_Q * 5)
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.status_within(ENDS_WITHIN_S) in (0, 128 + signal.SIGTERM)
    assert modes_left(screen.raw) == []
