"""One setting written into the person's settings file; every other line stays as it is.

The file is TOML that people edit: comments, order and tables are theirs. Only the statement
that sets the one name is replaced, or a line is added before the first table.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from ds4chat.errors import SettingsError
from ds4chat.settings import MAX_FILE_BYTES
from ds4chat.settings_row import Value
from ds4chat.store import lock

_NEW_MODE = 0o600


def keep(path: Path, name: str, value: Value) -> None:
    """Write a value into the file, which is made if there is none.

    The new file takes the old one's place in one step; a link is followed.

    Raises:
        SettingsError: the file cannot be read, is no TOML now, or cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _alone(target.parent, lambda: _replace(target, with_value(_read(target), name, value)))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise SettingsError(
            f"{path}: {name} was not kept: {words}", "The change holds for this run."
        ) from error


def with_value(text: str, name: str, value: Value) -> str:
    """The text of a settings file in which `name` has this value.

    Raises:
        tomllib.TOMLDecodeError: the text is no TOML.
    """
    wanted = {**tomllib.loads(text), name: _readable(value)}
    lines = text.split("\n")
    statements, n_top = _statements(lines)
    line = f"{name} = {written(value)}"
    at = statements.get(name)
    if at is None:
        lines.insert(_place(lines, statements, n_top), line)
    else:
        lines[at[0] : at[1]] = [line + _comment(lines[at[0] : at[1]])]
    new = "\n".join(lines)
    if not new.endswith("\n"):
        new += "\n"
    assert tomllib.loads(new) == wanted
    return new


def written(value: Value) -> str:
    """A value as TOML; None is the word `auto`."""
    if value is None:
        return '"auto"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _alone(folder: Path, work: Callable[[], None]) -> None:
    """Work while no other window changes a file of the folder; two seconds are waited for it.

    Raises:
        BlockingIOError: it took longer.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lock.patiently(handle, work)
    finally:
        os.close(handle)


def _readable(value: Value) -> Value:
    return "auto" if value is None else value


def _statements(lines: list[str]) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each name is set before the first table, and the line at which that begins."""
    found: dict[str, tuple[int, int]] = {}
    at = 0
    while at < len(lines):
        bare = lines[at].strip()
        if bare.startswith("["):
            return found, at
        stop = at + 1
        if bare and not bare.startswith("#"):
            names, stop = _statement(lines, at)
            found.update(dict.fromkeys(names, (at, stop)))
        at = stop
    return found, at


def _statement(lines: list[str], at: int) -> tuple[list[str], int]:
    """The names that a statement sets, and the line behind it: values may span lines."""
    for stop in range(at + 1, len(lines) + 1):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            return list(tomllib.loads("\n".join(lines[at:stop]) + "\n")), stop
    return [], at + 1


def _comment(lines: list[str]) -> str:
    """The comment behind a value, with the space before it."""
    text = "\n".join(lines) + "\n"
    whole = tomllib.loads(text)
    for at, character in enumerate(text):
        if character != "#":
            continue
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if tomllib.loads(text[:at]) == whole:
                return "  " + text[at:].rstrip()
    return ""


def _place(lines: list[str], statements: dict[str, tuple[int, int]], n_top: int) -> int:
    """Where a new line goes: behind the last statement, else before the first table."""
    if statements:
        return max(stop for _, stop in statements.values())
    if n_top == len(lines):  # no table: at the end
        return n_top - 1 if not lines[-1] else n_top
    at = n_top
    while at and lines[at - 1].strip().startswith("#"):
        at -= 1  # comments right above a table are about it
    return at


def _read(path: Path) -> str:
    if not path.exists():
        return ""
    data = path.read_bytes()
    if len(data) > MAX_FILE_BYTES:
        raise OSError(0, f"it is larger than {MAX_FILE_BYTES:,} bytes")
    return data.decode("utf-8")


def _replace(path: Path, text: str) -> None:
    data = text.encode("utf-8")
    mode = path.stat().st_mode & 0o777 if path.exists() else _NEW_MODE
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
