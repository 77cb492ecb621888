"""A few cycles of `python -m tests.cycles`, and its own checks: they can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ds4chat.protocol.types import ThinkMode
from ds4chat.store.library import Library
from tests.cycles.left import (
    Wrong,
    at_home,
    nobody_holds,
    processes_at,
    sessions_are_whole,
    snapshots_are_whole,
)
from tests.cycles.plan import Act, Moment, Plan, draw
from tests.cycles.run import Cycles
from tests.cycles.screen_cycle import CTRL_Q, Screen, modes_left

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.fixture(scope="module")
def cycles(tmp_path_factory: pytest.TempPathFactory) -> Cycles:
    return Cycles(tmp_path_factory.mktemp("cycles"))


def plan(moment: Moment, act: Act, *, on_screen: bool = False, goes_on: bool = False) -> Plan:
    return Plan(
        seed=0, on_screen=on_screen, moment=moment, act=act, delay_s=0.01, n_tokens=4,
        question="tell me", n_before=0, goes_on=goes_on,
    )  # fmt: skip


@pytest.mark.parametrize(
    "chosen",
    [
        plan(Moment.STREAM, Act.CANCEL),
        plan(Moment.PREFILL, Act.KILL, goes_on=True),
        plan(Moment.LOAD, Act.QUIT),
        plan(Moment.STREAM, Act.HANG_UP, on_screen=True),
        pytest.param(
            plan(Moment.STREAM, Act.KILL_ENGINE, on_screen=True, goes_on=True),
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_a_cycle(cycles: Cycles, chosen: Plan) -> None:
    assert cycles.run(chosen) == ""


def test_a_signal_to_go_on_leaves_nothing_that_outlives_the_program(tmp_path: Path) -> None:
    model = tmp_path / "scripted.gguf"
    model.touch()
    screen = Screen("tests.scripted_chat", str(model), "--sessions", str(tmp_path / "s"))
    try:
        screen.until_shown("scripted")
        os.kill(screen.pid, signal.SIGCONT)
        screen.write("tell me\r")
        screen.until_shown("tok/s ·")
        screen.write(CTRL_Q)
        assert screen.status_within(60) == 0
        assert modes_left(screen.raw) == []
    finally:
        screen.kill()


def test_a_seed_is_a_cycle_and_every_kind_is_drawn() -> None:
    plans = [draw(seed, 0.2) for seed in range(1000)]
    assert plans == [draw(seed, 0.2) for seed in range(1000)]
    assert 150 <= sum(p.on_screen for p in plans) <= 250
    kinds = Counter((p.on_screen, p.moment, p.act) for p in plans)
    assert len({kind for kind in kinds if not kind[0]}) == len(Moment) * 6
    assert {act for on_screen, _, act in kinds if on_screen} == set(Act)


# The checks themselves.


@pytest.mark.parametrize(
    ("raw", "wrong"),
    [
        ("\x1b[?1049h\x1b[?25l..\x1b[?1049l\x1b[?25h", []),
        ("\x1b[?1049h\x1b[?25l..\x1b[?25h", ["?1049h"]),
        ("\x1b[?1049h\x1b[?25l..\x1b[?1049l", ["?25l"]),
        ("\x1b[?1000;1006h", ["?1000h", "?1006h"]),
        ("\x1b[?2026h", []),
        ("\x1b[>1u", ["kitty keys pushed 1, popped 0"]),
        ("\x1b[>1u\x1b[<u", []),
    ],
)
def test_modes_that_are_left_are_seen(raw: str, wrong: list[str]) -> None:
    assert modes_left(raw) == wrong


def test_a_process_that_is_left_is_seen(tmp_path: Path) -> None:
    with at_home(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert processes_at(tmp_path) == [child.pid]
    child.communicate(b"\n")
    assert processes_at(tmp_path) == []


def test_a_claim_that_is_left_is_seen(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    with at_home(tmp_path):
        nobody_holds(model, was_killed=False)
        code = "import os, pathlib, sys; from ds4chat.engine import owner; "
        code += "c = owner.claim(pathlib.Path(sys.argv[1])); os._exit(0)"
        subprocess.run([sys.executable, "-c", code, str(model)], check=True)
        with pytest.raises(Wrong, match="claims are left"):
            nobody_holds(model, was_killed=False)
        nobody_holds(model, was_killed=True)
        nobody_holds(model, was_killed=False)  # asking removed it


def test_what_is_left_of_a_session_is_seen(tmp_path: Path) -> None:
    session = Library(tmp_path).create(about="x")
    session.ask("one", ThinkMode.OFF)
    with pytest.raises(Wrong, match="still holds it"):
        sessions_are_whole(tmp_path, ["one"], was_killed=False)
    session.close()
    assert len(sessions_are_whole(tmp_path, ["one"], was_killed=False)) == 1
    with pytest.raises(Wrong, match="asked"):
        sessions_are_whole(tmp_path, ["two"], was_killed=False)
    (session.folder / "transcript.jsonl.1").touch()
    with pytest.raises(Wrong, match="left in the session's folder"):
        sessions_are_whole(tmp_path, ["one"], was_killed=False)
    (session.folder / "transcript.jsonl.1").unlink()
    (tmp_path / ".new-1").mkdir()
    with pytest.raises(Wrong, match="left in the folder of sessions"):
        sessions_are_whole(tmp_path, ["one"], was_killed=False)
    sessions_are_whole(tmp_path, ["one"], was_killed=True)


def test_a_half_written_snapshot_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.json.tmp").touch()
    with pytest.raises(Wrong, match="temporary"):
        snapshots_are_whole(tmp_path, was_killed=False)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(Wrong, match="damaged"):
        snapshots_are_whole(tmp_path, was_killed=True)
