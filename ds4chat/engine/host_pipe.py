"""The host's two pipes: whole lines in, whole lines out, both of bounded length.

Import nothing heavy here: `claim` must run before a library can print.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO

from ds4chat.protocol.codec import MAX_LINE_BYTES, encode
from ds4chat.protocol.events import Event


def claim() -> tuple[BinaryIO, BinaryIO]:
    """Take standard input and output away from everything else in this process.

    Returns the command stream and the event stream. Afterwards file descriptor 1 is standard
    error, so that a library's print cannot break the protocol, and 0 is empty.
    """
    sys.stdout.flush()
    commands, events = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return os.fdopen(commands, "rb"), os.fdopen(events, "wb", buffering=0)


class LineWriter:
    """Writes events as lines; may be used from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._is_gone = False

    def emit(self, event: Event) -> None:
        """Write one event. When nobody reads any more, it is dropped."""
        data = memoryview(encode(event).encode("ascii"))
        with self._lock:
            try:
                while data and not self._is_gone:
                    data = data[self._stream.write(data) :]
            except OSError:
                self._is_gone = True


def lines(stream: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[bytes | None]:
    """Read lines up to the end of `stream`; a line longer than `limit` bytes is None."""
    while line := stream.readline(limit + 1):
        if len(line) > limit and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(limit)
            yield None
        else:
            yield line
