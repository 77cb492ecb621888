"""Interrupts, termination and broken pipes, on the real program."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripted_engine import TALE

BEGINNING = TALE.encode() * 3
PATIENCE_S = 90.0  # until a test gives up; nothing waits so long


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program in the middle of a reply that never ends."""
    model = tmp_path / "scripted.gguf"
    model.touch()
    command = [sys.executable, "-m", "tests.scripted_chat", str(model), "-p", "endless"]
    process = subprocess.Popen(
        [*command, "-v", "-c", "1000000"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stdout is not None
    seen = b""
    while len(seen) < len(BEGINNING):
        seen += process.stdout.read(len(BEGINNING) - len(seen))
    assert seen == BEGINNING
    yield process
    process.kill()
    process.communicate()


def test_an_interrupt_keeps_the_partial_answer(endless: subprocess.Popen[bytes]) -> None:
    endless.send_signal(signal.SIGINT)
    out, err = endless.communicate(timeout=PATIENCE_S)
    assert endless.returncode == 130
    assert out.endswith(b"\n")
    said = (BEGINNING + out).removesuffix(b"\n")
    assert (TALE.encode() * (len(said) // len(TALE) + 1)).startswith(said)
    assert b"stopped" in err


def test_termination_is_143(endless: subprocess.Popen[bytes]) -> None:
    endless.send_signal(signal.SIGTERM)
    endless.communicate(timeout=PATIENCE_S)
    assert endless.returncode == 143


def test_a_reader_that_leaves_is_no_error(endless: subprocess.Popen[bytes]) -> None:
    assert endless.stdout is not None
    assert endless.stderr is not None
    endless.stdout.close()
    err = endless.stderr.read()
    assert endless.wait(PATIENCE_S) == 0
    assert err == b""


def test_no_engine_outlives_the_program(endless: subprocess.Popen[bytes]) -> None:
    children = Path(f"/proc/{endless.pid}/task/{endless.pid}/children")
    if not children.exists():
        pytest.skip("no /proc here")
    engines = [int(pid) for pid in children.read_text().split()]
    assert engines
    endless.kill()
    endless.communicate(timeout=PATIENCE_S)
    for pid in engines:
        _wait_gone(pid)


def _wait_gone(pid: int) -> None:
    """Wait for a process that is not our child, on its own file descriptor."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(handle, "rb", buffering=0) as process:
        assert select.select([process], [], [], PATIENCE_S)[0], "the engine still runs"
