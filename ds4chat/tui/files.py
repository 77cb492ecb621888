"""A person's small files: only they can read them, and a full disk stops nothing."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ds4chat.smallfile import write_whole

_MODE = 0o600


def write_private(path: Path, text: str) -> bool:
    """Write a file that only the person can read, whole or not at all; False if that failed."""
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return False
        with contextlib.suppress(FileNotFoundError):
            path.chmod(_MODE)
        write_whole(path, text)
    except OSError:
        return False
    return True


def append_private(path: Path, text: str) -> bool:
    """Append a line to a file that only the person can read; False if that failed.

    A line that an end in mid-write left torn is ended first.
    """
    data = text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_APPEND
    try:
        handle = os.open(path, flags, _MODE)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                return False
            os.fchmod(handle, _MODE)
            size = found.st_size
            is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            file.write(b"\n" + data if is_torn else data)
    except OSError:
        return False
    return True
