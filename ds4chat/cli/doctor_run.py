"""Runs a section of checks in a process of its own, and makes findings of however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict

from ds4chat.cli.doctor_child import Ask
from ds4chat.cli.doctor_finding import Finding, fail, from_json
from ds4chat.client.wire import death

LIMITS_S = {"files": 60.0, "engine": 240.0, "open": 120.0, "kernels": 120.0}
"""The engine's section may have to compile."""
_SAID_LINES = 3
_TITLES = {"files": "model", "engine": "compute", "open": "compute"}

OnProgress = Callable[[str], None]


def command(section: str, ask: Ask) -> list[str]:
    """The command that checks a section; `-P`: no file of the working folder is a library."""
    module = "ds4chat.cli.doctor_child"
    return [sys.executable, "-P", "-m", module, section, json.dumps(asdict(ask))]


def findings(section: str, ask: Ask, words: str, progress: OnProgress) -> list[Finding]:
    """What a section finds. `words` say what is checked."""
    progress(words)
    return watch(command(section, ask), section, LIMITS_S[section])


def watch(argv: Sequence[str], section: str, limit_s: float) -> list[Finding]:
    """Run a command that prints findings; its crash or its silence is one more."""
    with _started(argv) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
            trouble = _trouble(process.returncode)
        except subprocess.TimeoutExpired:
            _end(process)
            out, err = process.communicate()
            trouble = f"took longer than {limit_s:g} s"
    found = [row for line in out.splitlines() for row in _read(line)]
    if trouble:
        said = err.decode("utf-8", "replace").strip().splitlines()[-_SAID_LINES:]
        found.append(
            fail(
                _TITLES.get(section, section), "check", ": ".join([trouble, *said]),
                "A library of this installation is broken: install ds4chat again.",
            )
        )  # fmt: skip
    return found


@contextmanager
def _started(argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a process group of its own; nothing of it is left, whatever comes.

    An interrupt during the start waits for its end: it would leave a process of which nobody
    knows.
    """
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            process_group=0,
        )  # fmt: skip
    except OSError:
        signal.signal(signal.SIGINT, before)
        raise
    with process:
        try:
            signal.signal(signal.SIGINT, before)
            if held:
                signal.raise_signal(signal.SIGINT)
            yield process
        finally:
            _end(process)
            process.wait()  # an interrupted Popen does not


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started, a compiler for example."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _trouble(status: int) -> str:
    return "" if status == 0 else death(status).replace("the engine", "it")


def _read(line: bytes) -> list[Finding]:
    """A line that is no finding is a library's own talk."""
    try:
        row = json.loads(line)
        return [from_json(row)] if isinstance(row, dict) else []
    except ValueError:
        return []
