"""Why the engine died, and the end of its log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ds4chat.tui.markdown.clean import clean_line

N_LINES = 3  # of the log's end
MAX_LINE = 160
_TAIL_BYTES = 64 << 10  # other windows write into it too
_HEAD = re.compile(r"\d{4}-\d\d-\d\d [\d:,.]+ (\d{1,10}) [A-Z]+ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the engine is gone. `log_end` are the last lines of its log that say more."""

    message: str
    hint: str = ""
    log_path: str = ""
    log_end: tuple[str, ...] = ()


def log_end(path: str, pid: int | None, known: str = "") -> list[str]:
    """The last lines that a process wrote into a log, made harmless.

    The log is shared by all runs and windows. A line begins `DATE TIME PID LEVEL`; one that
    does not goes on what stands above it.

    Args:
        path: the log; nothing comes of one that cannot be read.
        pid: the engine process; None: it never said who it is, and nothing is shown.
        known: lines that stand in this text are left out.
    """
    if pid is None:
        return []
    try:
        with Path(path).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except (OSError, ValueError):
        return []
    text = data.decode("utf-8", "replace")
    lines = [clean_line(line).strip() for line in _written_by(text.split("\n"), pid)]
    news = [line for line in lines if _HEAD.sub("", line).lower() not in known.lower()]
    return [line[:MAX_LINE] for line in news][-N_LINES:]


def _written_by(lines: Iterable[str], pid: int) -> Iterator[str]:
    is_mine = False
    for line in lines:
        head = _HEAD.match(line)
        if head is not None:
            is_mine = int(head[1]) == pid
        if is_mine:
            yield line
