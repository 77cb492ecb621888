"""A person's small files: only they can read them, and a full disk stops nothing."""

from __future__ import annotations

import os
from pathlib import Path

_MODE = 0o600


def write_private(path: Path, text: str) -> bool:
    """Write a file that only the person can read; False if that failed."""
    return _write(path, text, os.O_TRUNC)


def append_private(path: Path, text: str) -> bool:
    """Append to a file that only the person can read; False if that failed."""
    return _write(path, text, os.O_APPEND)


def _write(path: Path, text: str, flags: int) -> bool:
    data = text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8
    try:
        handle = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | flags, _MODE
        )
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, _MODE)
            file.write(data)
    except OSError:
        return False
    return True
