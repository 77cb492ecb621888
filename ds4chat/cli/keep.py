"""Which session the chat begins with, and what is printed when it ends."""

from __future__ import annotations

import contextlib
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ds4chat import paths
from ds4chat.cli.arguments import Arguments
from ds4chat.errors import SessionFileError, SettingsError
from ds4chat.store.clean import clean_line
from ds4chat.store.library import Library
from ds4chat.store.names import resume_command

if TYPE_CHECKING:
    from ds4chat.tui.app import Ds4ChatApp


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Where sessions lie, the one to resume (empty: a new one), and what is said of it."""

    root: Path
    is_usual: bool
    resume: str = ""
    notes: tuple[str, ...] = ()


def choose(given: Arguments, dirs: paths.UserDirs) -> Keep:
    """Find the session before a model is loaded.

    Raises:
        SettingsError: there is no such session.
    """
    is_usual = given.sessions is None
    root = dirs.sessions_root if given.sessions is None else Path(given.sessions).expanduser()
    library = Library(root)
    name = given.resume or ""
    try:
        if given.is_continued:
            name = library.latest() or ""
            if not name:
                raise SettingsError(
                    f"--continue: there is no session in {root} yet", "Start without it."
                )
        if name:
            name = library.path(name).name
    except SessionFileError as error:
        raise SettingsError(error.message, error.hint) from error
    return Keep(root=root.absolute(), is_usual=is_usual, resume=name)


def finish(app: Ds4ChatApp, model: str = "", support: str = "") -> None:
    """End the chat's session and print the command that resumes it.

    Args:
        app: the chat that ended.
        model: the model file, if it was named on the command line.
        support: the support file, likewise.
    """
    desk = app.chat_screen.sessions
    if desk is None:
        return
    try:
        name = desk.close()
    except SessionFileError as error:
        with contextlib.suppress(OSError):
            print(f"ds4chat: {clean_line(error.message)}", file=sys.stderr)
            print(f"  {clean_line(error.hint)}".rstrip(), file=sys.stderr)
        return
    if name:
        root = None if desk.plan.is_usual else desk.plan.root
        command = resume_command(name, root, model, program(), support)
        with contextlib.suppress(OSError):  # the window may be closed: nobody reads it
            print(f"Resume this chat with: {command}", flush=True)


def program() -> str:
    """How to start the program again: its path where the shell would not find its name."""
    called = sys.argv[0]
    is_found = shutil.which("ds4chat") is not None
    return called if Path(called).name == "ds4chat" and not is_found else "ds4chat"
