"""What keeps the engine process well-behaved: signals, a log, a death that cannot hang."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import stat
import sys
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

LOG_BYTES = 1 << 20
LOG_MODE = 0o600
GRACE_S = 1.5

_log = logging.getLogger("ds4chat")


def isolate() -> None:
    """Leave the terminal's process group and ignore its Ctrl+C.

    The screen decides what Ctrl+C means. SIGALRM keeps its default, death: see `end_within`.
    """
    with suppress(PermissionError):  # already the leader of its session
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


class _PrivateLog(RotatingFileHandler):
    """A log that only its owner can read, also after it was rotated."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, LOG_MODE)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, LOG_MODE)
        return TextIOWrapper(os.fdopen(handle, "ab"), encoding=self.encoding)


def open_log(path: Path | None) -> None:
    """Send the log to `path`, at most two files of `LOG_BYTES`; native crashes to stderr."""
    faulthandler.enable(file=sys.stderr)
    if path is None:
        _log.addHandler(logging.StreamHandler(sys.stderr))
        return
    try:
        handler = _PrivateLog(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        _log.addHandler(logging.StreamHandler(sys.stderr))
        _log.warning("%s: no log: %s", path, error.strerror)
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)


def say(line: str) -> None:
    """Put a line into the log and on standard error, for a client that shows it."""
    _log.info("%s", line)
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the client reads it


def end_within(seconds: float) -> None:
    """Let the kernel end this process after `seconds`, whatever it is doing then.

    A timer thread would need the interpreter lock, which a running kernel may hold.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds)
