"""Cards and reports as files."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

from ds4chat import paths, settings
from ds4chat.errors import SettingsError
from ds4chat.settings_row import nearest
from ds4chat.smallfile import free_name, write_whole
from ds4chat.tui.race.card import SpeedCard
from ds4chat.tui.race.card_svg import as_svg
from ds4chat.tui.race.card_text import as_text
from ds4chat.tui.race.lane import Lane
from ds4chat.tui.race.race import Race

_WRITERS: dict[str, Callable[[SpeedCard], str]] = {
    ".svg": as_svg,
    ".txt": as_text,
    ".json": SpeedCard.as_json,
}


def races_dir() -> Path:
    """The person's own folder for cards and reports; it is made when first asked for."""
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    return paths.private_dir(dirs.data_root / "races")


def check_card_name(name: str) -> Path:
    """Where a card goes. Raises SettingsError: no card has that ending; there is no folder."""
    path = Path(name).expanduser()
    if path.suffix.lower() not in _WRITERS:
        near = nearest(path.suffix.lower(), _WRITERS)
        hint = f"Did you mean {path.with_suffix(near)}?" if near else ""
        raise SettingsError(
            f"card {path}: the ending must be one of {', '.join(_WRITERS)}", hint
        )
    if not path.parent.is_dir():
        raise SettingsError(f"card {path}: there is no folder {path.parent}", "Make it first.")
    return path


def check_new(path: Path, hint: str) -> None:
    """Refuse a file that is there already. Raises SettingsError with that hint."""
    if os.path.lexists(path):
        raise _taken(path, hint)


def save_card(
    card: SpeedCard, name: str, *, replaces: bool = False, hint: str | None = None
) -> Path:
    """Write a card as its ending says.

    Args:
        card: what a race measured.
        name: the file.
        replaces: whether it may be there already.
        hint: what to say where it is and may not; None: the command with a free name.

    Raises:
        SettingsError: no card has that ending, or the file is there or cannot be written.
    """
    path = check_card_name(name)
    try:
        write(path, _WRITERS[path.suffix.lower()](card), is_new=not replaces)
    except FileExistsError as error:
        free = f"For example: /card {free_name(path)}"
        raise _taken(path, free if hint is None else hint) from error
    return path


def _taken(path: Path, hint: str) -> SettingsError:
    return SettingsError(f"{path}: it is there already", hint)


def report(race: Race, card: SpeedCard) -> str:
    """All that is needed to look into a difference, as JSON: the card and every token."""
    found = {
        "card": dataclasses.asdict(card),
        "messages": [dataclasses.asdict(message) for message in race.ask.messages],
        "lanes": {str(lane.side): _tokens(lane) for lane in race.lanes.values()},
    }
    return json.dumps(found, indent=1) + "\n"


def write(path: Path, text: str, *, is_new: bool = False) -> None:
    """Write a text file whole or not at all.

    Raises:
        FileExistsError: it is there, and `is_new`.
        SettingsError: it cannot be written.
    """
    try:
        write_whole(path, text, is_new=is_new)
    except FileExistsError:
        raise
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written: {error.strerror}") from error


def _tokens(lane: Lane) -> list[dict[str, object]]:
    return [
        {"text": placed.text, "at_s": placed.at_s, **dataclasses.asdict(placed.token)}
        for placed in lane.tokens
    ]
