"""The real program in a pseudo-terminal, as a person has it."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

PATIENCE_S = 90.0  # until a test gives up; nothing waits so long
ROOT = Path(__file__).parents[1]

_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?<>=$]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")


class Terminal:
    """A child process in a pseudo-terminal of `rows` x `columns`."""

    def __init__(
        self, *argv: str, rows: int = 40, columns: int = 120, environ: Mapping[str, str] = {}
    ) -> None:
        self.fd, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)  # the child cannot have changed it yet
        termios.tcsetwinsize(theirs, (rows, columns))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the child has our handler
        self.pid = os.fork()
        if self.pid == 0:
            _become([sys.executable, "-m", *argv], theirs, {**os.environ, **environ})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.close(theirs)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._status: int | None = None

    def write(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, wanted: Callable[[str], Any]) -> str:
        """Read until `wanted(everything so far)`; that text."""
        deadline = time.monotonic() + PATIENCE_S
        while not wanted(self.raw):
            assert time.monotonic() < deadline, f"it never came: {self.plain[-2000:]}"
            if not self._read():
                assert wanted(self.raw), f"the program ended: {self.plain[-2000:]}"
                break
        return self.raw

    def until_shown(self, text: str, *, since: int = 0) -> str:
        """Read until `text` was shown; `since`: behind so many characters of `raw`."""
        return self.until(lambda _: text in self.plain_since(since))

    def end(self) -> int:
        """Wait for the end; the exit status, or minus the signal's number."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, f"it does not end: {self.plain[-2000:]}"
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.end()
        os.close(self.fd)

    @property
    def plain(self) -> str:
        return self.plain_since(0)

    def plain_since(self, place: int) -> str:
        """What was shown behind so many characters of `raw`."""
        return _CONTROL.sub("", self.raw[place:])

    def styled(self) -> list[tuple[str, str]]:
        """`(style, text)` of everything printed, in order; style as SGR parameters."""
        found: list[tuple[str, str]] = []
        style = ""
        place = 0
        for match in _STYLE.finditer(self.raw):
            text = _CONTROL.sub("", self.raw[place : match.start()])
            if text:
                found.append((style, text))
            is_reset = match.group(1) in ("", "0")
            style = "" if is_reset else f"{style};{match.group(1)}"
            place = match.end()
        return found

    def _read(self) -> bool:
        if not select.select([self.fd], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:  # Linux: the other side is closed
            return False
        self.raw += self._decoder.decode(data)  # a character may come in two pieces
        return bool(data)


def _become(command: list[str], terminal: int, environ: Mapping[str, str]) -> NoReturn:
    """Turn this child into a program that a terminal belongs to."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.chdir(ROOT)
        os.login_tty(terminal)
        os.execve(command[0], command, environ)
    finally:
        os._exit(127)
