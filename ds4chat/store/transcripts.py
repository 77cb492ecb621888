"""Reading `transcript.jsonl`, the authority of a session, whatever happened to it.

A piece of a line at the end is what an interrupted write leaves: it is dropped with a notice.
A damaged line anywhere else is reported with its number and passed over; `Tree` keeps what it
belonged to from being taken for whole. A newer format is refused. Reading writes nothing.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.store import codec
from ds4chat.store.codec import BadLineError
from ds4chat.store.files import FileOps, trouble
from ds4chat.store.records import VERSION, Entry, Header, Problem
from ds4chat.store.tree import Tree

FILE_NAME = "transcript.jsonl"


@dataclass(slots=True, kw_only=True)
class Reading:
    """A transcript as it was found.

    Attributes:
        tree: the conversation.
        entries: the sound lines, in order.
        problems: the others, and what did not fit.
        good_bytes: the file's length without a torn last line.
        next_n: the number of the line to come.
        is_unended: the last good line lacks only its line feed.
        torn_bytes: length of the torn line; 0: none.
    """

    tree: Tree = field(default_factory=Tree)
    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    good_bytes: int = 0
    next_n: int = 1
    is_unended: bool = False
    torn_bytes: int = 0

    def notices(self) -> list[str]:
        """What a person should know about the file, a sentence each."""
        said = []
        if self.torn_bytes:
            said.append(
                f"The last line was not written to its end ({self.torn_bytes:,} bytes): it was "
                "dropped, all before it is kept."
            )
        said += [f"Line {problem.line}: {problem.message}." for problem in self.problems[:5]]
        if len(self.problems) > 5:
            said.append(f"{len(self.problems) - 5} more lines have problems.")
        return said


def read(path: Path, ops: FileOps | None = None) -> Reading:
    """Read the transcript at `path`.

    Raises:
        SessionFileError: it cannot be opened, is none, or is of a newer format.
    """
    try:
        fd = (ops or FileOps()).open(path, os.O_RDONLY)
        with io.BufferedReader(io.FileIO(fd), 1 << 20) as file:
            return read_stream(file, path)
    except OSError as error:
        raise trouble("cannot be read", path, error) from error


def check_version(path: Path, ops: FileOps) -> None:
    """Refuse a transcript of a newer format by its first line, before anything is touched.

    Raises:
        SessionFileError: it is one, or it cannot be opened.
    """
    try:
        with io.BufferedReader(io.FileIO(ops.open(path, os.O_RDONLY))) as file:
            line = file.readline(codec.MAX_LINE_BYTES)
    except OSError as error:
        raise trouble("cannot be read", path, error) from error
    version = _newer_version(line) if codec.is_sound(line.removesuffix(b"\n")) else None
    if version is not None:
        raise _refusal(path, version)


def read_bytes(data: bytes, path: Path) -> Reading:
    """Read a transcript from memory; `path` is for messages. Raises SessionFileError."""
    return read_stream(io.BytesIO(data), path)


def read_stream(file: io.BufferedIOBase, path: Path) -> Reading:
    """Read a transcript from an open file; `path` is for messages. Raises SessionFileError."""
    reader = _Reader(path)
    number = 0
    while raw := file.readline(codec.MAX_LINE_BYTES + 1):
        number += 1
        n_bytes = len(raw)
        while not raw.endswith(b"\n") and (rest := file.readline(codec.MAX_LINE_BYTES)):
            n_bytes += len(rest)  # of a line too long to be one: passed over
            raw = raw[: codec.MAX_LINE_BYTES + 1] + rest[-1:]
        reader.take(number, raw, n_bytes)
    return reader.finish()


class _Reader:
    """One pass over the lines of a transcript."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading = Reading()
        self._n_unread = 0  # damaged lines since the last sound one
        self._newer: int | None = None

    def take(self, number: int, raw: bytes, n_bytes: int) -> None:
        """Take in line `number`, its line feed included, `n_bytes` long in the file."""
        ended = raw.endswith(b"\n")
        line = raw[:-1] if ended else raw
        try:
            entry = codec.decode(line)
        except BadLineError as error:
            if number == 1:
                self._newer = _newer_version(line)
                if self._newer is not None and codec.is_sound(line):
                    raise _refusal(self._path, self._newer) from error
            if not ended:
                self._reading.torn_bytes = n_bytes
                return
            self._n_unread += 1
            self._report(number, str(error))
        else:
            if isinstance(entry.record, Header) and entry.record.version != VERSION:
                raise _refusal(self._path, entry.record.version)
            self._take_entry(number, entry)
            self._reading.is_unended = not ended
        self._reading.good_bytes += n_bytes

    def finish(self) -> Reading:
        """What was read."""
        reading = self._reading
        if not reading.entries:
            if self._newer is not None:
                raise _refusal(self._path, self._newer)
            raise SessionFileError(
                f"{self._path}: not a transcript: no line of it can be read",
                "Is it a session of this program?",
            )
        return reading

    def _take_entry(self, number: int, entry: Entry) -> None:
        reading = self._reading
        n_missing = entry.n - reading.next_n - self._n_unread
        if n_missing > 0:
            self._report(number, f"{n_missing} lines before it are missing")
        elif entry.n < reading.next_n:
            self._report(number, f"its number, {entry.n}, was there before")
        wrong = reading.tree.apply(entry)
        if wrong:
            reading.problems.append(Problem(line=number, message=wrong))
        reading.entries.append(entry)
        reading.next_n = max(reading.next_n, entry.n + 1)
        self._n_unread = 0

    def _report(self, number: int, message: str) -> None:
        problem = Problem(line=number, message=message)
        self._reading.problems.append(problem)
        self._reading.tree.note_damage(problem)


def _newer_version(line: bytes) -> int | None:
    """The version that an unreadable first line names, if it is a newer one."""
    try:
        version = codec.parse(line).get("version")
    except BadLineError:
        return None
    return version if type(version) is int and version > VERSION else None


def _refusal(path: Path, version: int) -> SessionFileError:
    return SessionFileError(
        f"{path}: session format {version}; this program reads format {VERSION}",
        "A newer ds4chat wrote it: update this one. The file was not touched.",
    )
