"""`ds4chat` alone: the bundled pair answers on the screen, once, and from a saved session."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat import paths
from tests.terminal import Terminal

NANO = paths.nano_dir()

pytestmark = pytest.mark.skipif(NANO is None, reason="this checkout has no bundled pair")


def test_it_opens_alone_answers_and_is_resumed(tmp_path: Path) -> None:
    terminal = Terminal("ds4chat", "--sessions", str(tmp_path), rows=24, columns=80)
    try:
        terminal.until_shown("ds4-nano")
        terminal.until_shown("Ask something")
        terminal.write("What is the capital of France?\r")
        terminal.until_shown("Paris")
        terminal.until_shown("tok/s ·")
        terminal.write("\x11")
        assert terminal.end() == 0
    finally:
        terminal.kill()
    (session,) = [path.name for path in tmp_path.iterdir() if path.name[0] != "."]
    again = answer("-r", session, "--sessions", str(tmp_path), "-p", "Hello!", "--json")
    events = [json.loads(line) for line in again.splitlines()]
    (started,) = [event for event in events if event["event"] == "start"]
    assert started["n_cached"] > 0


def test_the_sample_session_goes_on_without_reading_again(tmp_path: Path) -> None:
    shutil.copytree(paths.samples_dir() / "v1-nano", tmp_path / "v1-nano")
    said = answer("-r", "v1-nano", "--sessions", str(tmp_path), "-p", "Thank you!", "--json")
    events = [json.loads(line) for line in said.splitlines()]
    (started,) = [event for event in events if event["event"] == "start"]
    assert started["n_prompt"] - started["n_cached"] < 12
    (done,) = [event for event in events if event["event"] == "receipt"]
    assert done["reason"] == "stop"


def test_one_shot_answers_are_the_same_plain_and_speculative() -> None:
    question = ("-p", "Write a Python function that adds two numbers.")
    spec, plain = answer(*question), answer(*question, "--plain")
    assert "def " in spec
    assert spec == plain


def answer(*argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ds4chat", *argv],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout
