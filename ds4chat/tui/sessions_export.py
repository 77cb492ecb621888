"""Writes the chat to a file, by its suffix: Markdown, JSON, HTML or SVG."""

from __future__ import annotations

import os
from pathlib import Path

from ds4chat import paths
from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import Source
from ds4chat.store import export
from ds4chat.store.export.look import Look
from ds4chat.store.files import trouble
from ds4chat.store.tree import Tree
from ds4chat.tui import themes


def write(tree: Tree, name: str, path: Path) -> None:
    """Write the current branch (JSON: all) to a new file that only its owner may read.

    Raises:
        SessionFileError: the suffix is none of the formats', the file is there already, or the
            disk refuses.
    """
    kind = export.SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise SessionFileError(
            f"{path}: {path.suffix or 'no suffix'!r} is no format of an export",
            f"Suffixes: {', '.join(export.SUFFIXES)}.",
        )
    text = export.export(tree, name, kind, look_of("") if kind in ("html", "svg") else None)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError as error:
        raise SessionFileError(f"{path}: it is there already", "Name another file.") from error
    except OSError as error:
        raise trouble("cannot be written", path, error) from error


def look_of(theme_name: str) -> Look:
    """A theme's colours for HTML and SVG."""
    theme = themes.pick(themes.load_themes([paths.themes_dir()]), theme_name)
    return Look(
        sources={source: theme.palette.by_source(source) for source in Source},
        background=theme.screen.background or "#000000",
        foreground=theme.screen.foreground or "#d0d0d0",
        dim=theme.screen.secondary or "#808080",
    )
