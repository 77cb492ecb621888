"""The parser of the subcommands: what it does not know it refuses, with the nearest it does."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from ds4chat.settings_row import nearest


class Parser(argparse.ArgumentParser):
    """An argument parser whose refusals name what there is.

    Args:
        takes_rest: `parse_known_args` gives back what no argument took, as argparse does;
            otherwise that is refused. Options cannot be abbreviated.
        options: argparse's own.
    """

    def __init__(self, *, takes_rest: bool = False, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._takes_rest = takes_rest
        self._kinds: argparse._SubParsersAction[Parser] | None = None

    def add_kinds(self) -> argparse._SubParsersAction[Parser]:
        """Subcommands; one of them must be given."""
        self._kinds = self.add_subparsers(metavar="WHAT", dest="what")
        return self._kinds

    @property
    def kinds(self) -> dict[str, Parser]:
        """The subcommands with their parsers."""
        return dict(self._kinds.choices) if self._kinds is not None else {}

    @property
    def actions(self) -> list[argparse.Action]:
        """All arguments, in the order of the help text."""
        return self._actions  # argparse has no public list

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; refuses what no argument took, and a missing subcommand."""
        found, rest = super().parse_known_args(args, namespace)
        if rest and not self._takes_rest:
            self.error(self._surplus(rest))
        if self._kinds is not None and found.what is None:
            known = ", ".join(self.kinds)
            self.error(f"WHAT is missing: {known}; `{self.prog} --help` explains them")
        return found, rest

    def _surplus(self, rest: Sequence[str]) -> str:
        flag = first_flag(rest)
        if flag is None:
            return f"{rest[0]!r:.60} is one word too many"
        names = [name for action in self._actions for name in action.option_strings]
        return no_option(flag, names, self.prog)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = nearest(str(value), known)
        meant = f"; did you mean {near}?" if near else ""
        raise argparse.ArgumentError(
            action, f"{value!r:.60} is none of {', '.join(known)}{meant}"
        )


def first_flag(words: Iterable[str]) -> str | None:
    """The first word that looks like an option, or None."""
    return next((word for word in words if word.startswith("-") and word != "-"), None)


def no_option(flag: str, known: Sequence[str], program: str) -> str:
    """That there is no such option, and the one that was meant."""
    name = flag.partition("=")[0]
    bare = {word.lstrip("-"): word for word in known}
    near = bare.get(nearest(name.lstrip("-"), bare))
    meant = f"did you mean {near}?" if near else f"`{program} --help` lists them"
    return f"there is no option {name!r:.60}: {meant}"
