"""`ds4chat --replay NAME`: a session again, at the speed at which it was written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ds4chat import paths
from ds4chat.cli import start
from ds4chat.cli.arguments import Arguments
from ds4chat.demo.replay import ReplayEngine
from ds4chat.errors import SessionFileError, SettingsError
from ds4chat.settings import Settings
from ds4chat.store.library import Library
from ds4chat.store.session import Session


def run(given: Arguments, values: Settings, dirs: paths.UserDirs) -> int:
    """Show the session's current branch; returns the exit status.

    Raises:
        SettingsError: there is no such session.
    """
    from ds4chat.cli import chat

    session = _find(given, dirs)
    link = ReplayEngine(session.tree)
    banner = (
        f"Replay of {session.name}: recorded, at the speed it was written. Esc skips a reply."
    )
    how = replace(start.make(values, None), banner=banner, questions=link.questions)
    return chat.open_chat(link, how, values, None)


def _find(given: Arguments, dirs: paths.UserDirs) -> Session:
    """A session of the person's, else a sample that ships with the program."""
    name = given.replay or ""
    root = dirs.sessions_root if given.sessions is None else Path(given.sessions).expanduser()
    try:
        return Library(root).read(name)
    except SessionFileError as error:
        if given.sessions is None:
            with suppress(SessionFileError):
                return Library(paths.samples_dir()).read(name)
        raise SettingsError(error.message, error.hint) from error
