"""Checks of names that hold in every mode, whether or not the mode uses the thing."""

from __future__ import annotations

import os
from pathlib import Path

from ds4chat import paths
from ds4chat.errors import SettingsError
from ds4chat.settings import Origin, Settings
from ds4chat.settings_row import nearest


def theme(values: Settings, dirs: paths.UserDirs) -> None:
    """Refuse a theme that is not there. Raises SettingsError."""
    name = values.theme
    if not name:
        return
    folders = (paths.themes_dir(), dirs.config_root / "themes")
    known = sorted({path.stem for folder in folders for path in folder.glob("*.toml")})
    if name in known:
        return
    near = nearest(name, known)
    places = {
        Origin.COMMAND_LINE: "--theme",
        Origin.ENVIRONMENT: "DS4CHAT_THEME",
        Origin.FILE: f"{dirs.config_file}, theme",
    }
    where = places.get(values.origin("theme"), "theme")
    meant = f"Did you mean {near!r}? " if near else ""
    raise SettingsError(
        f"{where}: there is no theme {name!r:.60}", f"{meant}There are: {', '.join(known)}."
    )


def sessions_folder(given: str | None) -> None:
    """Refuse a folder of sessions that is a file, or nothing. Raises SettingsError."""
    if given == "":
        raise SettingsError("--sessions names no folder", "Leave it out for your data folder.")
    if given is not None and os.path.isfile(Path(given).expanduser()):  # noqa: PTH113 - any name
        raise SettingsError(f"--sessions {given}: a file, not a folder", "Name a folder.")
