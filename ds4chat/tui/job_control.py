"""Ctrl+Z: back to the shell, as it is with any other program of a terminal.

In raw mode the key reaches the program and not the terminal's driver, so the program stops
itself, and everything that was started with it (`make chat`).
"""

from __future__ import annotations

import os
import signal

NO_SHELL = "Ctrl+Z: no shell is here that could bring the chat back (fg), so it goes on"


def has_shell() -> bool:
    """Whether a shell with job control started this program.

    Such a shell gives each job a process group of its own. Without one (`xterm -e`, `ssh HOST
    ds4chat`, a container) the group is that of the session's leader, and nobody would continue
    what was stopped.
    """
    return os.getpgrp() != os.getsid(0)


def stop_group() -> None:
    """Stop this process group; returns when it is continued.

    The terminal must have been given back. The default action stops the whole process at once;
    a handler written in Python would run somewhat later.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.killpg(os.getpgrp(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)
