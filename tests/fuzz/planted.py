"""Targets with a known fault each: they show that the harness finds every kind."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ds4chat.errors import SettingsError
from tests.fuzz.case import Files, Target

TRIGGER = b"\x07"
"""The byte that sets a planted fault off; every tenth case or so holds it."""

_kept: list[object] = []


def _make(rng: random.Random) -> Files:
    raw = bytearray(b"." * rng.randrange(40, 400))
    if rng.random() < 0.1:
        raw[rng.randrange(len(raw))] = TRIGGER[0]
    return {"input": bytes(raw)}


def _crash(_folder: Path) -> None:
    raise KeyError("planted")


def _hang(_folder: Path) -> None:
    while True:
        pass


def _wait(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with (folder / "pipe").open("rb") as file:
        file.read()


def _deaf(_folder: Path) -> None:
    """Waits where no signal is heard."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGPROF})
    time.sleep(3600)


def _heap(_folder: Path) -> None:
    bytearray(200 << 20)


def _mapped(_folder: Path) -> None:
    """An allocation that Python's own accounting does not see."""
    mmap.mmap(-1, 200 << 20).close()


def _resident(_folder: Path) -> None:
    """Uses address space that was there before the case."""
    for at in range(0, len(_pool()), mmap.PAGESIZE):
        _pool()[at] = 1


@cache
def _pool() -> mmap.mmap:
    return mmap.mmap(-1, 70 << 20)


def _prepare() -> None:
    _pool()


def _outside(folder: Path) -> None:
    (folder.parent / "elsewhere").write_bytes(b"x")


def _message(_folder: Path) -> None:
    raise SettingsError("a bell: \x07")


def _leak(folder: Path) -> None:
    _kept.append(os.open(folder / "input", os.O_RDONLY))


def _warning(_folder: Path) -> None:
    warnings.warn("planted", RuntimeWarning, stacklevel=1)


def _death(_folder: Path) -> None:
    ctypes.string_at(0)


def _run(fault: Callable[[Path], None]) -> Callable[[Path], str]:
    def run(folder: Path) -> str:
        if TRIGGER in (folder / "input").read_bytes():
            fault(folder)
        return "read"

    return run


_FAULTS = {
    "crash": _crash, "hang": _hang, "wait": _wait, "deaf": _deaf, "heap": _heap,
    "mapped": _mapped, "resident": _resident, "outside": _outside, "message": _message,
    "leak": _leak, "warning": _warning, "death": _death,
}  # fmt: skip
TARGETS = tuple(
    Target(name=f"planted-{name}", make=_make, run=_run(fault), prepare=_prepare)
    for name, fault in _FAULTS.items()
)
