"""Whole lines in, whole lines out."""

from __future__ import annotations

import io
from typing import cast

from ds4chat.engine import host_pipe
from ds4chat.protocol.codec import encode
from ds4chat.protocol.events import Done


def test_lines_longer_than_the_limit_are_skipped_whole() -> None:
    stream = io.BytesIO(b"ab\n" + b"x" * 25 + b"\n" + b"y" * 9 + b"\n" + b"z" * 30)
    assert list(host_pipe.lines(stream, limit=9)) == [b"ab\n", None, b"y" * 9 + b"\n", None]


class Slow(io.RawIOBase):
    """A pipe that takes three bytes at a time, then breaks."""

    def __init__(self, room: int) -> None:
        self.got = b""
        self._room = room

    def write(self, data: object) -> int:
        part = bytes(data)[:3]  # type: ignore[call-overload]
        if len(self.got) >= self._room:
            raise BrokenPipeError
        self.got += part
        return len(part)


def test_the_writer_finishes_short_writes_and_survives_a_broken_pipe() -> None:
    pipe = Slow(room=1000)
    host_pipe.LineWriter(cast(io.BufferedIOBase, pipe)).emit(Done(request_id=1))  # type: ignore[arg-type]
    assert pipe.got == encode(Done(request_id=1)).encode()
    broken = host_pipe.LineWriter(cast(io.BufferedIOBase, Slow(room=4)))  # type: ignore[arg-type]
    broken.emit(Done(request_id=1))
    broken.emit(Done(request_id=2))
