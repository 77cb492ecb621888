"""The prompt in a person's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from ds4chat.errors import SettingsError

MAX_BYTES = 1 << 20
_WANTED = "Set VISUAL or EDITOR to your editor's command."


def edit(text: str, command: str) -> str:
    """Let an editor change a text; the terminal must be the editor's meanwhile.

    Args:
        text: What to begin with.
        command: The editor with its arguments, as in `EDITOR`.

    Returns:
        What the editor saved, without the line feed at its end.

    Raises:
        SettingsError: there is no editor, it failed, or it saved something unusable.
    """
    words = _words(command)
    handle, name = tempfile.mkstemp(prefix="ds4chat-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        _run([*words, name])
        return _read(path)
    finally:
        path.unlink(missing_ok=True)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SettingsError(f"the editor {command!r:.60}: {error}", _WANTED) from error
    if not words:
        raise SettingsError("no editor is set", _WANTED)
    return words


def _run(words: list[str]) -> None:
    try:
        status = subprocess.run(words, check=False).returncode
    except OSError as error:
        raise SettingsError(
            f"the editor {words[0]!r:.60} cannot be started: {os.strerror(error.errno or 0)}",
            _WANTED,
        ) from error
    if status:
        raise SettingsError(
            f"the editor {words[0]!r:.60} ended with status {status}",
            "The prompt is unchanged.",
        )


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            raise SettingsError(f"{len(data):,} bytes were saved; the limit is {MAX_BYTES:,}")
        return data.decode("utf-8").removesuffix("\n")
    except OSError as error:
        raise SettingsError(f"the edited file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError("the edited file is not UTF-8 text") from error
