"""The report of a defect: a file with the traceback, and no text of the conversation."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

from ds4chat import __version__, paths, settings
from ds4chat.errors import Ds4Error
from ds4chat.smallfile import write_whole


def write_report(error: BaseException, now: float | None = None) -> Path | None:
    """Write what is known of a defect; returns where, or None if it cannot be written."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    frames = "".join(traceback.format_exception(error))
    text = (
        f"ds4chat {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{frames}"
    )
    path = _folder() / f"crash-{stamp}.txt"
    try:
        write_whole(path, text)
    except OSError:
        return None
    return path


def tell(error: BaseException) -> None:
    """Say on standard error that this is a defect, and where the report lies."""
    path = write_report(error)
    sys.stderr.write(f"ds4chat: internal error: {type(error).__name__}: {error}\n")
    where = path if path is not None else "could not be written"
    sys.stderr.write(f"  This is a defect of ds4chat. The report: {where}\n")
    sys.stderr.write("  `ds4chat doctor --report` describes this machine; attach that too.\n")


def _folder() -> Path:
    try:
        return paths.UserDirs.from_variables(settings.path_variables()).log_dir()
    except Ds4Error:
        return Path(tempfile.gettempdir())
