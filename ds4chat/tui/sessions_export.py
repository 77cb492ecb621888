"""Writes the chat to a file, by its suffix: Markdown, JSON, HTML or SVG."""

from __future__ import annotations

from pathlib import Path

from ds4chat import paths
from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import Source
from ds4chat.smallfile import free_name, write_whole
from ds4chat.store import export
from ds4chat.store.export.look import Look
from ds4chat.store.files import trouble
from ds4chat.store.tree import Tree
from ds4chat.tui import themes


def write(tree: Tree, name: str, path: Path, *, is_folder: bool = False) -> None:
    """Write the current branch (JSON: all) to a new file that only its owner may read.

    Args:
        tree: the conversation.
        name: the session's.
        path: the file.
        is_folder: it was written as a folder, with a slash at its end.

    Raises:
        SessionFileError: the suffix is none of the formats', the file is there already, or the
            disk refuses.
    """
    try:
        kind = _check(path, name, is_folder=is_folder)
    except OSError as error:
        raise trouble("cannot be written", path, error) from error
    text = export.export(tree, name, kind, look_of("") if kind in ("html", "svg") else None)
    try:
        write_whole(path, text, is_new=True)
    except FileExistsError as error:
        raise SessionFileError(
            f"{path}: it is there already", _example(free_name(path))
        ) from error
    except OSError as error:
        raise trouble("cannot be written", path, error) from error


def _check(path: Path, name: str, *, is_folder: bool) -> str:
    """The format that a path asks for, and that there can be a new file.

    Raises:
        SessionFileError: what is wrong with the path, with one that works.
    """
    file = path.name if path.suffix.lower() in export.SUFFIXES else f"{name}.md"
    if path.is_dir():
        raise SessionFileError(
            f"{path}: a folder; an export is a file", _example(free_name(path / file))
        )
    if is_folder:
        raise SessionFileError(
            f"{path}/: a folder that is not there; an export is a file",
            _example(free_name(path.with_name(f"{path.name}.md"))),
        )
    if not path.parent.is_dir():
        what = "is a file, not a folder" if path.parent.exists() else "is not there"
        raise SessionFileError(
            f"{path}: the folder {path.parent} {what}", _example(free_name(Path(file)))
        )
    kind = export.SUFFIXES.get(path.suffix.lower())
    if kind is None:
        what = f"the suffix {path.suffix!r} names no format" if path.suffix else "no suffix"
        raise SessionFileError(
            f"{path}: {what}; there are {', '.join(export.SUFFIXES)}",
            _example(free_name(path.with_name(f"{path.stem}.md"))),
        )
    return kind


def _example(path: Path) -> str:
    return f"For example: /export {path}"


def look_of(theme_name: str) -> Look:
    """A theme's colours for HTML and SVG."""
    theme = themes.pick(themes.load_themes([paths.themes_dir()]), theme_name)
    return Look(
        sources={source: theme.palette.by_source(source) for source in Source},
        background=theme.screen.background or "#000000",
        foreground=theme.screen.foreground or "#d0d0d0",
        dim=theme.screen.secondary or "#808080",
    )
