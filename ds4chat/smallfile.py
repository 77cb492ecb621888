"""Small text files that a person reads or writes: settings, themes, history, exports.

A path may name a pipe, a device or a folder, and a file may hold what costs a parser more than
it looks; both are refused here, in words. What is written is there whole or not at all.
Knows nothing of what the files are for.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from ds4chat.errors import SettingsError

MAX_DOTS = 16
"""Deepest dotted name; the parser's time grows with the square of it."""

_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)[ \t]*\.[ \t]*"""
_DOTTED = re.compile(rf"""(?<![\w"'-])(?:{_PART}){{{MAX_DOTS + 1}}}""")


def read_bytes(path: Path, limit: int) -> bytes:
    """All bytes of a regular file of at most `limit` bytes; links are followed.

    Raises:
        SettingsError: it is larger.
        OSError: it cannot be read, or is no regular file.
    """
    # Without O_NONBLOCK the open of a named pipe would wait for a writer for ever.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
        size = max(len(data), os.fstat(handle).st_size)
    finally:
        os.close(handle)
    if size > limit:
        raise SettingsError(f"{plain(path)}: {size:,} bytes; the limit is {limit:,}")
    return data


def read_text(path: Path, limit: int) -> str:
    """The text of a small file; line ends of every kind become line feeds.

    Raises:
        SettingsError: it cannot be read, is too large, or is not UTF-8; says which file.
    """
    try:
        text = read_bytes(path, limit).decode("utf-8")
    except OSError as error:
        words = error.strerror or str(error)
        raise SettingsError(f"{plain(path)}: cannot be read: {words}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{plain(path)}: not UTF-8 text") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path, limit: int) -> dict[str, Any]:
    """The tables of a small TOML file.

    Raises:
        SettingsError: as `read_text`; or it is not TOML, or nested absurdly deep.
    """
    text = read_text(path, limit)
    deep = _DOTTED.search(text)
    if deep is not None:
        line = text.count("\n", 0, deep.start()) + 1
        raise SettingsError(
            f"{plain(path)}: line {line}: a name with more than {MAX_DOTS} dots",
            "Use tables: [name] above the lines.",
        )
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise SettingsError(f"{plain(path)}: brackets are nested too deep") from error
    except ValueError as error:  # the parser's own, and numbers of thousands of digits
        raise SettingsError(
            f"{plain(path)}: not TOML: {plain(str(error), 200)}", "One `name = value` a line."
        ) from error


def write_whole(path: Path, text: str, *, is_new: bool = False) -> None:
    """Write a text in one step: whatever ends this, the file is the old or the new one.

    A new file is private to its owner, one that is replaced keeps its mode; a link is followed.
    What is no regular file (`/dev/stdout`, a pipe) is written to as it is.

    Args:
        path: the file.
        text: all of it; lone surrogates become `?`.
        is_new: refuse to replace a file.

    Raises:
        FileExistsError: there is one, and `is_new`.
        OSError: it cannot be written; the old one is as it was.
    """
    data = text.encode("utf-8", "replace")
    target = Path(os.path.realpath(path))
    if is_new and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            file.write(data)
        return
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
    handle, name = tempfile.mkstemp(prefix=".ds4chat-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        if is_new and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def free_name(path: Path) -> Path:
    """That path, or one with a number where something lies there already."""
    numbered = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
    return next(p for p in itertools.chain((path,), numbered) if not os.path.lexists(p))


def plain(text: object, limit: int = 400) -> str:
    """A name or path for a message: nothing that a terminal obeys, and cut to `limit`."""
    words = str(text)
    if not words.isprintable():
        words = repr(words)[1:-1]
    return words if len(words) <= limit else words[: limit - 1] + "…"


def shown(value: object, limit: int = 60) -> str:
    """Any value for a message, in Python's notation; only its type if that cannot be had."""
    try:
        return f"{value!r:.{limit}}"
    except (ValueError, RecursionError):  # a number of thousands of digits; endless brackets
        return f"a very long {type(value).__name__}"
