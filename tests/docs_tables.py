"""`python -m tests.docs_tables`: writes the tables of `docs/` in the program's own words.

Options, settings, keys, commands and the words of the screen stand in the program once; a test
compares the pages with what this makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ds4chat import settings
from ds4chat.cli import arguments
from ds4chat.settings_row import Row
from ds4chat.tui.commands import COMMANDS
from ds4chat.tui.keys import PROMPT_KEYS, SCREEN_KEYS
from ds4chat.tui.screens.help import WORDS

DOCS = Path(__file__).parents[1] / "docs"

Table = tuple[str, ...]


def of_settings() -> Table:
    """Every setting with its options."""
    rows = []
    for row in settings.rows():
        value = f" {row.metavar}" if row.flags and row.metavar else ""
        long = [f"`{flag}`" for flag in row.flags]
        if long:
            long[0] = long[0][:-1] + value + "`"
        options = [*long, *(f"`{flag}`" for flag, _ in row.shortcuts)]
        rows.append((f"`{row.name}`", " ".join(options), _meaning(row)))
    return _table(("setting", "options", "meaning"), rows)


def of_options() -> Table:
    """Options of the command line that are no settings."""
    taken = {
        name for row in settings.rows() for name in (*row.flags, *(f for f, _ in row.shortcuts))
    }
    rows = [
        (" ".join(f"`{name}`" for name in flag.names), flag.doc)
        for flag in arguments.flag_table()
        if not taken & set(flag.names)
    ]
    return _table(("option", "meaning"), rows)


def of_keys() -> Table:
    """The key list of the help screen."""
    rows = [(row.shown, row.summary) for row in SCREEN_KEYS]
    return _table(
        ("key", "action"), [(_key(name), what) for name, what in (*rows, *PROMPT_KEYS)]
    )


def of_commands() -> Table:
    """The slash commands."""
    rows = [(f"`{command.usage}`", command.summary) for command in COMMANDS.values()]
    return _table(("command", "what it does"), rows)


def of_words() -> Table:
    """The words that the help screen defines."""
    return _table(("word", "meaning"), WORDS)


TABLES: tuple[tuple[str, Callable[[], Table]], ...] = (
    ("command-line.md", of_settings),
    ("command-line.md", of_options),
    ("keys.md", of_keys),
    ("keys.md", of_commands),
    ("colours.md", of_words),
)


def found(text: str, head: str) -> Table:
    """The lines of the table under that first line; empty if there is none."""
    lines = text.splitlines()
    if head not in lines:
        return ()
    start = lines.index(head)
    end = start
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return tuple(lines[start:end])


def main() -> None:
    """Put the program's tables in place of those that the pages have."""
    for name, make in TABLES:
        path = DOCS / name
        text = path.read_text(encoding="utf-8")
        wanted = make()
        old = "\n".join(found(text, wanted[0]))
        assert old, f"{name} has no table {wanted[0]}"
        path.write_text(text.replace(old, "\n".join(wanted), 1), encoding="utf-8")


def _meaning(row: Row) -> str:
    choices = f" One of {', '.join(row.choices)}." if row.choices else ""
    return row.doc + choices


def _key(shown: str) -> str:
    return shown.replace("^", "Ctrl+")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    lines = [head, ("---",) * len(head), *rows]
    return tuple(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    main()
