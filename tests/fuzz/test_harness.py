"""The harness itself: it finds what is planted, makes it small, and shows it again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import keep
from tests.fuzz.planted import TARGETS, TRIGGER

PLANTED = {
    "crash": "crash: KeyError",
    "hang": "hang: HangError",
    "wait": "hang: HangError",
    "deaf": "death: SIGKILL",
    "heap": "memory: MemoryError",
    "mapped": "memory: OSError",
    "resident": "memory: ok read",
    "outside": "write: OutsideError",
    "message": "message: a character that is not printable",
    "leak": "leak: ok read",
    "warning": "crash: RuntimeWarning",
    "death": "death: SIGSEGV",
}
WAITING = {"wait": "1.5", "deaf": "1.5"}  # seconds; the rest must not end by this clock
COMPUTING = {"hang": "0.3"}  # seconds of CPU


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own: it forks, and limits its memory."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_fault_is_found(name: str) -> None:
    target = next(t for t in TARGETS if t.name == f"planted-{name}")
    first = next(n for n in range(999) if TRIGGER in _input(target.case(n)["input"]))
    done = fuzz(
        "--planted", "--target", target.name, "--first", str(max(0, first - 2)), "--cases", "3",
        "--bar", COMPUTING.get(name, "30"), "--wait", WAITING.get(name, "60"), "--no-shrink",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"FOUND (.*?) +\(case", done.stdout)
    assert PLANTED[name] in found, done.stdout


def test_a_case_without_the_trigger_is_sound() -> None:
    target = TARGETS[0]
    quiet = next(n for n in range(999) if TRIGGER not in _input(target.case(n)["input"]))
    done = fuzz("--planted", "--target", target.name, "--seed", str(quiet))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("sound: ok read")


def test_a_finding_is_made_small_and_runs_again(tmp_path: Path) -> None:
    words = ("--planted", "--target", "planted-crash", "--cases", "30", "--out", str(tmp_path))
    done = fuzz(*words)
    assert done.returncode == 1, done.stdout + done.stderr
    (place,) = tmp_path.iterdir()
    assert keep.read(place) == ("planted-crash", {"input": TRIGGER})
    again = fuzz("--planted", "--replay", str(place))
    assert again.returncode == 1, again.stdout + again.stderr
    assert again.stdout.startswith("crash: KeyError")


def test_cases_come_from_their_number_alone() -> None:
    for target in TARGETS:
        assert target.case(7) == target.case(7)
        assert any(target.case(7) != target.case(n) for n in range(8, 12))


def test_an_unknown_target_is_named() -> None:
    done = fuzz("--planted", "--target", "nonsense")
    assert done.returncode == 2
    assert "'nonsense'" in done.stdout


def _input(content: object) -> bytes:
    assert isinstance(content, bytes)
    return content
