"""A SIGKILL at any moment leaves the old or the new state, and no saved turn is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def kill(folder: Path, *words: str) -> int:
    """Run the killer; returns how many processes it killed."""
    what, name, *rest = words
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.store.killer", what, name, str(folder), *rest],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    ("scenario", "at_least"),
    [
        ("create", 8),
        ("talk", 20),
        ("rename", 8),
        ("delete", 4),
        ("undelete", 2),
        ("strip", 6),
        ("take over", 4),
        ("copy", 8),
    ],
)
def test_a_kill_at_every_operation(scenario: str, at_least: int, tmp_path: Path) -> None:
    assert kill(tmp_path / "k", "each", scenario) >= at_least


def test_random_kills_lose_no_saved_turn(tmp_path: Path) -> None:
    assert kill(tmp_path / "k", "random", "150", "1") == 150


@pytest.mark.slow
def test_thousands_of_random_kills(tmp_path: Path) -> None:
    for seed in range(2, 12):
        assert kill(tmp_path / "k", "random", "300", str(seed)) == 300
