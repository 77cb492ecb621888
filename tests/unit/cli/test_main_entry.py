"""The very first lines of the program, interrupted."""

from __future__ import annotations

import signal

import pytest

from ds4chat import __main__ as entry
from ds4chat.cli import chat, main


def test_an_interrupt_is_an_exit_status_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "main", interrupted)
    assert entry.main() == main.EXIT_INTERRUPTED


def test_before_the_screen_listens_ctrl_c_is_a_plain_signal() -> None:
    before = signal.getsignal(signal.SIGINT)
    with chat._plain_interrupts():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before
