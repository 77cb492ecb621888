"""The writer behind the screen, when the terminal goes away."""

from __future__ import annotations

import io
import os
import pty
import sys

import pytest
from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver

from ds4chat.tui import terminal_output
from ds4chat.tui.terminal_output import PatientWriter, SteadyDriver


class Counted(io.StringIO):
    n_flushed = 0

    def flush(self) -> None:
        self.n_flushed += 1


def test_everything_is_written_in_order_and_flushed() -> None:
    file = Counted()
    writer = PatientWriter(file)
    writer.start()
    for i in range(200):
        writer.write(f"{i} ")
    writer.stop()
    assert file.getvalue().split() == [str(i) for i in range(200)]
    assert file.n_flushed > 0


def test_after_the_terminal_closed_writing_neither_waits_nor_fails() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as file:
        os.close(ours)
        writer = PatientWriter(file)
        writer.start()
        for _ in range(3 * MAX_QUEUED_WRITES):
            writer.write("x")
        writer.stop()
        assert not writer.is_alive()
        with pytest.raises(OSError, match="Input/output"):
            file.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), theirs)  # for what is left in its buffer


def test_the_driver_writes_through_it() -> None:
    module = sys.modules[LinuxDriver.__module__]
    before = vars(module)["WriterThread"]
    try:
        vars(module)["WriterThread"] = WriterThread
        terminal_output.guard(LinuxDriver)
        assert vars(module)["WriterThread"] is PatientWriter
        terminal_output.guard(LinuxDriver)
        assert vars(module)["WriterThread"] is PatientWriter
    finally:
        vars(module)["WriterThread"] = before


@pytest.mark.parametrize("was_stopped", [True, False])
def test_a_signal_to_go_on_starts_what_was_stopped_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, was_stopped: bool
) -> None:
    resumed: list[bool] = []
    monkeypatch.setattr(LinuxDriver, "resume_application_mode", lambda _: resumed.append(True))
    driver = SteadyDriver.__new__(SteadyDriver)
    driver._auto_restart = True
    driver._must_signal_resume = was_stopped
    driver._sigcont_application()
    assert bool(resumed) is was_stopped


def test_only_the_driver_of_terminals_is_replaced() -> None:
    assert terminal_output.steady(LinuxDriver) is SteadyDriver
    assert terminal_output.steady(HeadlessDriver) is HeadlessDriver
