"""The command line, built from the table of settings."""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ds4chat import __version__, settings
from ds4chat.cli import completion, vocabulary
from ds4chat.cli.parser import Parser, first_flag, no_option
from ds4chat.settings_row import Row

COMMANDS = ("inspect", "bench", "race", "sessions", "doctor")
"""Subcommands: modules of this package with a function `run(argv) -> exit status`."""

USAGE = """\
ds4chat [MODEL] [options]
       ds4chat inspect FILE [--pair OTHER] [--json] [--tensors] [--sha256]
       ds4chat bench WHAT [options]
       ds4chat race [PRESET | PROMPT] [options]
       ds4chat sessions WHAT [options]
       ds4chat doctor [MODEL] [--report [FILE]] [--kernels] [--json]"""
DESCRIPTION = """\
Chat with DeepSeek-V4-Flash in the terminal, with exact DSpark speculative decoding.
With -p, -f or text on standard input: answer once on standard output. A pipe or file on
standard input stands below the text of -p (echo TEXT | ds4chat -p "sum this up"); -f reads
its file only; without both, standard input is the prompt, up to its end.
What is answered without the screen is not kept, unless -r or --continue names a session."""
EPILOG = """\
Every setting is also a line of the settings file (name = value) and a variable
DS4CHAT_<NAME>; the command line wins over the variable, the variable over the file.
A file called like a subcommand: ./inspect

exit status: 0 ok, 1 model or engine refused or failed, 2 usage or unreadable path,
3 internal error, 130 interrupted, 143 terminated"""

GREEDY_NOTICE = "--greedy: temperature 0 and no speculation (--temp 0 --no-spec)"
EXACT_NOTICE = "--mtp-exact-sampling: sampling is always exact here"
DRAFT_NOTICE = (
    "--mtp-draft is ignored: the support file says how far to draft (see --draft-max)"
)
# ds4's flags that mean nothing here: (flag, metavar, why).
_IGNORED = (
    ("--mtp-draft", "N", DRAFT_NOTICE),
    ("--mtp-margin", "F", "--mtp-margin is ignored: it belongs to another draft module"),
    ("--mtp-timing", "", "--mtp-timing is ignored: -v and DS4_DSPARK_STATS=1 show times"),
    ("--warm-weights", "", "--warm-weights is ignored: weights are read into memory at start"),
    ("--prefill-chunk", "N", "--prefill-chunk is ignored: chunk borders are part of the state"),
    ("--power", "N", "--power is ignored: there is no duty cycle here"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What was typed. `given` holds the settings, unchecked."""

    given: dict[str, object]
    prompt: str | None = None
    prompt_file: str | None = None
    json: bool = False
    verbose: bool = False
    inspect: bool = False
    completion: str | None = None
    resume: str | None = None
    is_continued: bool = False
    sessions: str | None = None
    replay: str | None = None
    notices: tuple[str, ...] = field(default=())

    @property
    def is_one_shot(self) -> bool:
        """Whether a prompt was given on the command line."""
        return self.prompt is not None or self.prompt_file is not None


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of the texts above and leaves room for the flags."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=96)


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line; exits with status 2 on a flag that does not exist."""
    parser = make_parser()
    known, rest = parser.parse_known_args(argv)
    if rest:
        parser.error(_not_understood(known.positional, rest))
    found = vars(known)
    own = {name: found.pop(name) for name in _OWN}
    notices = []
    if own["greedy"]:
        found = {"temp": 0.0, "spec": False} | found
        notices.append(GREEDY_NOTICE)
    if own["mtp_exact_sampling"]:
        notices.append(EXACT_NOTICE)
    notices += own["ignored"] or []
    positional = own["positional"]
    if positional is not None:
        if found.get("model", positional) != positional:
            parser.error(f"two models: {positional} and {found['model']}")
        found["model"] = positional
    if own["resume"] is not None and own["is_continued"]:
        parser.error("--resume NAME or --continue, not both")
    if own["prompt"] is not None and own["prompt_file"] is not None:
        parser.error("give the prompt with -p or with -f, not both")
    return Arguments(
        given=found,
        prompt=own["prompt"],
        prompt_file=own["prompt_file"],
        json=own["json"],
        verbose=own["verbose"],
        inspect=own["inspect"],
        completion=own["completion"],
        resume=own["resume"],
        is_continued=own["is_continued"],
        sessions=own["sessions"],
        replay=own["replay"],
        notices=tuple(notices),
    )


def _not_understood(word: str | None, rest: Sequence[str]) -> str:
    """What is wrong with words that no flag took, and what was meant."""
    flag = first_flag(rest)
    if flag is not None:
        known = [name for action in make_parser().actions for name in action.option_strings]
        return no_option(flag, known, "ds4chat")
    command = meant_command(word or "")
    if command:
        line = shlex.join([command, *rest])
        return f"there is no command {word!r:.60}: did you mean `ds4chat {line}`?"
    return f"one MODEL only, found {word!r:.60} and {rest[0]!r:.60}; to ask something: -p TEXT"


def meant_command(word: str) -> str:
    """The subcommand that a word is a misspelling of, or an empty string."""
    found = difflib.get_close_matches(word.lower(), COMMANDS, n=1, cutoff=0.7)
    return found[0] if found else ""


def flag_table() -> tuple[completion.Flag, ...]:
    """Every flag of the program itself."""
    return vocabulary.flags_of(make_parser())


_OWN = (
    "positional", "prompt", "prompt_file", "json", "verbose", "inspect",
    "greedy", "mtp_exact_sampling", "ignored", "completion",
    "resume", "is_continued", "sessions", "replay",
)  # fmt: skip


def make_parser() -> Parser:
    """The parser of the program's own options; `positional` is the model."""
    parser = Parser(
        prog="ds4chat", usage=USAGE, description=DESCRIPTION, epilog=EPILOG,
        formatter_class=_Formatter, takes_rest=True,
    )  # fmt: skip
    parser.add_argument("positional", nargs="?", metavar="MODEL", help="main GGUF file")
    _add_own(parser)
    add_settings(parser)
    return parser


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting, without defaults: `settings.load` has them."""
    group = parser.add_argument_group("settings")
    for row in settings.rows():
        _add_setting(group, row)


def _add_own(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "-p",
        "--prompt",
        metavar="TEXT",
        help="answer this, and what is piped in below it, and leave",
    )
    add("-f", "--prompt-file", metavar="FILE", help="the prompt from a file; -: standard input")
    add("--json", action="store_true", help="one shot: JSON Lines, tokens with provenance")
    add("-v", "--verbose", action="store_true", help="one shot: statistics on standard error")
    add("--inspect", action="store_true", help="show what the model file holds and leave")
    add(
        "-r",
        "--resume",
        metavar="NAME",
        help="go on with a saved session, on the screen or with -p",
    )
    add("--continue", dest="is_continued", action="store_true", help="with the latest one")
    add("--sessions", metavar="DIR", help="where sessions lie (default: your data folder)")
    add("--replay", metavar="NAME", help="show a session again at true speed, no engine")
    add("--greedy", action="store_true", help="--temp 0 --no-spec")
    add("--mtp-exact-sampling", action="store_true", help="ds4's: sampling is always exact")
    for flag, metavar, why in _IGNORED:
        kind: dict[str, Any] = {"action": "append_const", "const": why}
        if metavar:
            kind = {"action": "append", "type": lambda _, why=why: why, "metavar": metavar}
        add(flag, dest="ignored", help="ds4's: ignored", **kind)
    add("--completion", choices=completion.SHELLS, help="print a completion script and leave")
    add("--version", action="version", version=f"ds4chat {__version__}")


def _add_setting(group: Any, row: Row) -> None:
    if row.flags:
        group.add_argument(
            *row.flags, dest=row.name, default=argparse.SUPPRESS,
            metavar=row.metavar or "|".join(row.choices), help=_help(row),
        )  # fmt: skip
    for place, (flag, value) in enumerate(row.shortcuts):
        is_first = place == 0 and not row.flags
        group.add_argument(
            flag, dest=row.name, default=argparse.SUPPRESS, action="store_const", const=value,
            help=_help(row) if is_first else f"{row.name} = {_word(value)}",
        )  # fmt: skip


def _help(row: Row) -> str:
    default = "" if row.default in ("", None, False, True) else f" (default {row.default})"
    return (row.doc + default).replace("%", "%%")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
