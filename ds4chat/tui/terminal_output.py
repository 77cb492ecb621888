"""The terminal's driver, also after the terminal has closed.

Textual 8.2 writes from a thread behind a queue of thirty pieces. When the terminal is gone the
first write fails, the thread ends, and whoever puts the thirty-first piece waits for ever: the
program would outlive its window, and with it the engine's memory. And it starts its threads
anew at every SIGCONT, which the kernel also sends behind the SIGHUP of a terminal that closes:
at the program's end nobody would stop them again.
"""

from __future__ import annotations

import sys
from typing import Any

from textual.driver import Driver
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver


class PatientWriter(WriterThread):
    """Textual's writer that goes on taking what can no longer be shown."""

    def run(self) -> None:
        """Write until told to stop; without a terminal, drop instead."""
        is_open = True
        while (text := self._queue.get()) is not None:
            is_open = is_open and self._put(text, is_last=self._queue.empty())
        if is_open:
            self._put("", is_last=True)

    def _put(self, text: str, *, is_last: bool) -> bool:
        """Write a piece, and bring it out when no other waits; False: the terminal is gone."""
        try:
            self._file.write(text)
            if is_last:
                self._file.flush()
        except (OSError, ValueError):  # ValueError: the file was closed
            return False
        return True


class SteadyDriver(LinuxDriver):
    """Textual's driver that only goes on where it was stopped before."""

    def _sigcont_application(self, *args: Any) -> None:
        if self._must_signal_resume:
            super()._sigcont_application(*args)


def steady(driver: type[Driver]) -> type[Driver]:
    """The driver to use in place of Textual's."""
    return SteadyDriver if driver is LinuxDriver else driver


def guard(driver: type[Driver]) -> None:
    """Let a driver write through it; one without that thread stays as it is."""
    module = sys.modules[driver.__module__]
    if vars(module).get("WriterThread") is WriterThread:
        vars(module)["WriterThread"] = PatientWriter
