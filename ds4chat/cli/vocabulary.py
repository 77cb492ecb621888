"""All that can be typed, taken from the parsers: for completion and the tables of `docs/`."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ds4chat import paths, settings
from ds4chat.cli.completion import Command, Flag, Kind
from ds4chat.cli.parser import Parser

_METAVARS = {"FILE": Kind.FILE, "OTHER": Kind.FILE, "MODEL": Kind.FILE, "DIR": Kind.FOLDER}
_NAMES = {"resume": Kind.SESSION, "replay": Kind.SESSION, "name": Kind.SESSION}
_FILES = ("model", "support")  # of benchmarks, which have no metavar for them
_PLAIN = re.compile(r"[\w.+-]+")  # a word that means nothing to any shell


def program() -> Command:
    """The program with all its subcommands."""
    from ds4chat.cli import arguments
    from ds4chat.tui.race.presets import PRESETS

    found = []
    for name in arguments.COMMANDS:
        module = importlib.import_module(f"ds4chat.cli.{name}")
        command = command_of(module.make_parser())
        if name == "race":
            command = replace(command, kind=Kind.WORD, values=tuple(PRESETS))
        found.append((name, command))
    return replace(command_of(arguments.make_parser()), commands=tuple(found))


def command_of(parser: Parser) -> Command:
    """One parser, with its subcommands."""
    places = [action for action in parser.actions if not action.option_strings]
    kind = _kind(places[0]) if places else Kind.NOTHING
    if parser.prog.endswith(" undelete"):
        kind = Kind.DELETED
    commands = tuple((name, command_of(below)) for name, below in parser.kinds.items())
    return Command(
        flags=flags_of(parser), kind=Kind.NOTHING if commands else kind, commands=commands
    )


def flags_of(parser: Parser) -> tuple[Flag, ...]:
    """The flags of one parser, in the order of its help text."""
    return tuple(
        Flag(
            names=tuple(action.option_strings),
            doc=(action.help or "").replace("%%", "%"),
            kind=_kind(action),
            values=_values(action),
        )
        for action in parser.actions
        if action.option_strings
    )


def _kind(action: argparse.Action) -> Kind:
    """What may be typed for an argument."""
    if action.nargs == 0:
        return Kind.NOTHING
    if action.dest in _NAMES:
        return _NAMES[action.dest]
    if _values(action):
        return Kind.WORD
    if action.dest in _FILES:
        return Kind.FILE
    return _METAVARS.get(str(action.metavar), Kind.TEXT)


def _values(action: argparse.Action) -> tuple[str, ...]:
    """The words that an argument takes, where there are a few."""
    if action.nargs == 0:
        return ()
    if action.choices is not None:
        return tuple(str(choice) for choice in action.choices)
    if action.dest == "theme":
        return _stems([paths.themes_dir().glob("*.toml"), _own_themes()])
    if action.dest == "replay":
        return _stems([paths.samples_dir().iterdir()])
    return next((row.choices for row in settings.rows() if row.name == action.dest), ())


def _own_themes() -> Iterable[Path]:
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    return (dirs.config_root / "themes").glob("*.toml")


def _stems(groups: Iterable[Iterable[Path]]) -> tuple[str, ...]:
    stems = {path.stem for group in groups for path in group}
    return tuple(sorted(stem for stem in stems if _PLAIN.fullmatch(stem)))
