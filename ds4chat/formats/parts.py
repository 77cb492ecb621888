"""Opening files: what can be mapped, and which files together are one split model."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import ModelFileError
from ds4chat.formats.directory import Directory, read_directory
from ds4chat.formats.show import printable, shown_path

_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MAX_PARTS = 1024  # of one model; an absurd count must not become as many look-ups

_REASONS = {
    errno.ENOENT: ("no such file", "Check the path."),
    errno.EACCES: ("permission denied", "Make the file readable for you."),
    errno.ENAMETOOLONG: ("the name is too long", "Check the path."),
    errno.ELOOP: ("a circle of symbolic links", "Check the path."),
}


@dataclass(slots=True, kw_only=True)
class Part:
    """One mapped file. `data` is the whole of it, read-only."""

    path: Path
    buffer: mmap.mmap
    data: NDArray[np.uint8] | None
    directory: Directory

    def close(self) -> None:
        """Unmap the file, or leave that to the last array that still looks into it."""
        self.data = None
        try:
            self.buffer.close()
        except BufferError:
            return


def open_part(path: Path) -> Part:
    """Map one file and read its directory.

    Raises:
        ModelFileError: it cannot be read (then `__cause__` is an OSError), or is no sound GGUF.
    """
    buffer = _map(path)
    try:
        directory = read_directory(buffer, str(path))
    except BaseException:
        buffer.close()
        raise
    data = np.frombuffer(buffer, dtype=np.uint8)
    return Part(path=path, buffer=buffer, data=data, directory=directory)


def _map(path: Path) -> mmap.mmap:
    try:
        # Without O_NONBLOCK the open of a named pipe would wait for a writer for ever.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        handle = os.open(path, flags)
        try:
            _check_regular(path, os.fstat(handle))
            return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(handle)
    except OSError as error:
        what, hint = _REASONS.get(error.errno or 0, (error.strerror or str(error), ""))
        raise ModelFileError(f"{shown_path(path)}: {what}", hint) from error
    except ValueError as error:  # a NUL in the path
        raise ModelFileError(
            f"{shown_path(path)}: not a usable path ({error})", "Check the path."
        ) from OSError(errno.EINVAL, str(error))


def _check_regular(path: Path, status: os.stat_result) -> None:
    shown = shown_path(path)
    if stat.S_ISDIR(status.st_mode):
        names = sorted(entry.name for entry in path.glob("*.gguf"))[:5]
        hint = f"Name the file in it: {printable(', '.join(names), 300)}." if names else ""
        raise ModelFileError(f"{shown}: a folder, not a file", hint) from IsADirectoryError()
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(
            f"{shown}: not a regular file (a pipe or device?)", "Copy it to a file first."
        ) from OSError(errno.EINVAL, "not a regular file")
    if status.st_size == 0:
        raise ModelFileError(
            f"{shown}: empty: 0 bytes, a GGUF file has at least 24",
            "The download may not have begun: fetch the file again.",
        )


def open_parts(path: Path) -> tuple[Part, ...]:
    """Open the file `path`, or all parts of the split model that it belongs to, in order.

    Raises:
        ModelFileError: as `open_part`; or parts are missing, doubled or of different models.
    """
    first = open_part(path)
    opened = [first]
    try:
        opened += [open_part(other) for other in _other_parts(path, first.directory)]
        parts = sorted(opened, key=lambda part: part.path.name) if len(opened) > 1 else opened
        if len(parts) > 1:
            _check_parts(parts)
    except BaseException:
        for part in opened:
            part.close()
        raise
    return tuple(parts)


def _split_number(directory: Directory, key: str) -> int | None:
    value = directory.metadata.get(f"split.{key}")
    return value if isinstance(value, int) else None


def _other_parts(path: Path, directory: Directory) -> list[Path]:
    """The other files of the split that `path` is a part of; raises if any is not there."""
    named = _SPLIT_NAME.fullmatch(path.name)
    by_key = _split_number(directory, "count")
    if named is None:
        if by_key is not None and by_key > 1:
            raise ModelFileError(
                f"{shown_path(path)}: one of {by_key} parts, but its name does not say which",
                "Give the parts their names again: NAME-00001-of-0000N.gguf.",
            )
        return []
    count = int(named["count"])
    if by_key is not None and by_key != count:
        raise ModelFileError(
            f"{shown_path(path)}: the name says {count} parts, "
            f"the key split.count says {by_key}",
            "Give the parts the names that they were published under.",
        )
    if not 1 <= int(named["no"]) <= count <= _MAX_PARTS:
        raise ModelFileError(
            f"{shown_path(path)}: part {int(named['no'])} of {count} cannot be",
            f"Parts are numbered from 1; at most {_MAX_PARTS} are expected.",
        )
    names = [f"{named['stem']}-{no:05}-of-{named['count']}.gguf" for no in range(1, count + 1)]
    paths = [path.with_name(name) for name in names]
    missing = [part.name for part in paths if not part.exists()]
    if missing:
        shown = ", ".join(printable(name) for name in missing)
        raise ModelFileError(
            f"{shown_path(path)}: {len(missing)} of {count} parts are missing: {shown}",
            "Put all parts in one folder.",
        )
    return [part for part in paths if part != path]


def _check_parts(parts: list[Part]) -> None:
    problems = []
    for position, part in enumerate(parts):
        number = _split_number(part.directory, "no")
        if number is not None and number != position:
            problems.append(
                f"{printable(part.path.name)} holds part {number + 1}, "
                f"its name says part {position + 1}"
            )
    total = _split_number(parts[0].directory, "tensors.count")
    found = sum(len(part.directory.tensors) for part in parts)
    if total is not None and total != found:
        problems.append(f"the parts hold {found} tensors, split.tensors.count says {total}")
    if problems:
        raise ModelFileError(
            f"{shown_path(parts[0].path)}: the parts do not fit together: "
            + "; ".join(problems),
            "Fetch the parts again; each must keep its published name.",
        )
