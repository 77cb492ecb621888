"""What is asked without a screen: -p, -f, standard input, and which of them is read when."""

from __future__ import annotations

import os
import stat
import sys

from ds4chat.cli import start
from ds4chat.cli.arguments import Arguments
from ds4chat.errors import SettingsError

WAYS = "Give one with -p TEXT, -f FILE or a pipe."


def prompt(given: Arguments) -> str | None:
    """The prompt of a one shot; None: read line after line from a terminal.

    `-p TEXT`: TEXT, and below it what a pipe or file on standard input holds. `-f FILE`: the
    file alone, `-` is standard input. Neither: standard input, unless it is a terminal.

    Raises:
        SettingsError: there is nothing to ask, or it cannot be read.
    """
    if given.prompt is not None:
        found = _with_input(given.prompt) if _has_input() else given.prompt
    elif given.prompt_file is not None:
        found = start.read(given.prompt_file)
    elif sys.stdin.isatty():
        return None
    else:
        found = start.read("-")
    if not found.strip():
        raise SettingsError("the prompt is empty", WAYS)
    return found


def _with_input(text: str) -> str:
    """The text, and what is on standard input as a paragraph of its own."""
    below = start.read("-")
    return f"{text}\n\n{below}" if below.strip() else text


def _has_input() -> bool:
    """Whether standard input is a pipe or a file: a terminal or a socket might never end."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
