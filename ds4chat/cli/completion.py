"""Completion scripts for bash, zsh and fish, made from a table of all that can be typed.

A script holds plain words, and for the names of sessions it lists their folder; it calls
nothing but the shell: completing starts no Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, auto

SHELLS = ("bash", "zsh", "fish")


class Kind(StrEnum):
    """What a word on the command line is."""

    NOTHING = auto()
    TEXT = auto()  # of the person's own
    WORD = auto()  # one of a few
    FILE = auto()
    FOLDER = auto()
    SESSION = auto()
    DELETED = auto()  # a session in the trash


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag with its spellings.

    `kind` is what follows it; `values` are words that may follow, also beside a session's name.
    """

    names: tuple[str, ...]
    doc: str
    kind: Kind = Kind.NOTHING
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The program or a subcommand; `kind` and `values` are those of the words behind it."""

    flags: tuple[Flag, ...] = ()
    kind: Kind = Kind.NOTHING
    values: tuple[str, ...] = ()
    commands: tuple[tuple[str, Command], ...] = ()

    @property
    def names(self) -> list[str]:
        """All spellings of all flags."""
        return [name for flag in self.flags for name in flag.names]

    def walk(self, at: str = "") -> Iterator[tuple[str, Command]]:
        """This and all below it, each with the words that lead there."""
        yield at, self
        for name, command in self.commands:
            yield from command.walk(f"{at} {name}".strip())


def script(shell: str, program: Command) -> str:
    """The completion script of a shell, one of `SHELLS`."""
    from ds4chat.cli import completion_bash, completion_fish, completion_zsh

    makers = {
        "bash": completion_bash.make,
        "zsh": completion_zsh.make,
        "fish": completion_fish.make,
    }
    return makers[shell](program)


def data_home(platform: str = sys.platform) -> str:
    """Where `paths.UserDirs` puts a person's data if no XDG variable says so, below HOME."""
    return "Library/Application Support" if platform == "darwin" else ".local/share"


def quoted(text: str) -> str:
    """A word in single quotes, for bash, zsh and fish alike."""
    return "'" + text.replace("'", "'\"'\"'") + "'"
