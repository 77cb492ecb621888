"""Why the engine died, and the end of its log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ds4chat.tui.markdown.clean import clean_line

N_LINES = 3  # of the log's end
MAX_LINE = 160
_TAIL_BYTES = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the engine is gone. `log_end` are the last lines of its log."""

    message: str
    log_path: str = ""
    log_end: tuple[str, ...] = ()


def log_end(path: str) -> list[str]:
    """The last lines of a log, made harmless; none if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except (OSError, ValueError):
        return []
    lines = [clean_line(line).strip() for line in data.decode("utf-8", "replace").split("\n")]
    return [line[:MAX_LINE] for line in lines if line][-N_LINES:]
