"""Signals that this program ignores: the programs it starts would ignore them too."""

from __future__ import annotations

import signal


def heed_signals() -> None:
    """Undo what a shell did for a job in the background, or `nohup`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
