"""`ds4chat doctor`: what of this machine, installation and model works, and how to mend it.

Exit status: 0 nothing fails, 1 something does, 2 wrong arguments, 130 interrupted.
Nothing is changed, but that the fast CPU product is built where it was not yet.
"""

from __future__ import annotations

import argparse
import json
import locale
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ds4chat import __version__, paths, settings
from ds4chat.cli import arguments, doctor_run, models
from ds4chat.cli.doctor_child import Ask
from ds4chat.cli.doctor_disk import check_crashes, check_disk, check_sessions
from ds4chat.cli.doctor_finding import (
    Finding,
    as_json,
    fail,
    grouped,
    has_failed,
    ok,
    render,
    warn,
)
from ds4chat.cli.doctor_program import check_program, check_settings
from ds4chat.cli.doctor_terminal import TerminalFacts, check_terminal
from ds4chat.cli.parser import Parser
from ds4chat.errors import SettingsError

USAGE = (
    "ds4chat doctor [MODEL] [--json] [--report [FILE]] [--kernels] [--sessions DIR] [settings]"
)
DESCRIPTION = "Check this machine, the installation, settings, model files and sessions."
EPILOG = """\
--model, --support, --backend and --ctx say what to check; without them it is what
`ds4chat` alone would open. A report holds no text of a conversation and no name of a session.

exit status: 0 nothing fails, 1 something does, 2 usage, 130 interrupted"""
MODEL = "model"

_OWN = ("positional", "json", "report", "kernels", "sessions")


def run(argv: Sequence[str]) -> int:
    """Check everything and print it; returns the exit status.

    Raises:
        SettingsError: the report cannot be written.
    """
    found = vars(make_parser().parse_args(argv))
    own = {name: found.pop(name) for name in _OWN}
    if own["positional"] is not None:
        found["model"] = own["positional"]
    findings = check(found, sessions=own["sessions"], wants_kernels=own["kernels"])
    _progress("")
    if own["report"] is not None:
        path = write_report(findings, own["report"])
        print(f"written: {path}", file=sys.stderr)
    if own["json"]:
        print(json.dumps(as_json(findings, about()), indent=2))
    elif own["report"] is None:
        is_coloured = settings.wants_color(str(found.get("color", "auto")), sys.stdout.isatty())
        print(render(findings, is_coloured=is_coloured))
    return 1 if has_failed(findings) else 0


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        prog="ds4chat doctor", usage=USAGE, description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("positional", nargs="?", metavar="MODEL", help="main GGUF file")
    add("--json", action="store_true", help="print JSON")
    add(
        "--report", nargs="?", const="", metavar="FILE",
        help="write a text file for a report of a defect, your home folder shortened to ~",
    )  # fmt: skip
    add("--kernels", action="store_true", help="try every operation of the model one by one")
    add("--sessions", type=Path, metavar="DIR", help="where sessions lie")
    arguments.add_settings(parser)
    return parser


def check(
    given: dict[str, object], *, sessions: Path | None = None, wants_kernels: bool = False
) -> list[Finding]:
    """Every check, in the order in which a person wants to read it."""
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    findings = [*check_terminal(_terminal()), *check_program()]
    values, of_settings = check_settings(given, dirs)
    findings += of_settings
    ask, of_files = _model(values)
    ask = replace(ask, is_thorough=wants_kernels)
    findings += of_files
    findings += doctor_run.findings("engine", ask, "the compute backend", _progress)
    if ask.model:
        findings += doctor_run.findings("open", ask, "the whole model", _progress)
    if wants_kernels:
        findings += doctor_run.findings("kernels", ask, "operation by operation", _progress)
    root = sessions or dirs.data_root / "sessions"
    findings += [*check_disk(dirs, root), *check_crashes(dirs.state_root)]
    return grouped([*findings, *check_sessions(root, _progress)])


def _terminal() -> TerminalFacts:
    size = None
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        if stream.isatty():
            size = os.get_terminal_size(stream.fileno())
            break
    return TerminalFacts(
        size=(size.columns, size.lines) if size is not None else None,
        variables=settings.terminal_variables(),
        encoding=sys.stdout.encoding or locale.getpreferredencoding(do_setlocale=False),
    )


def _model(values: settings.Settings | None) -> tuple[Ask, list[Finding]]:
    """What to open, and what is known of the files."""
    if values is None:
        return Ask(), []
    how = Ask(backend=values.backend, ctx=values.ctx, cpu_blas=values.cpu_blas)
    try:
        pair = models.choose(values, paths.nano_dir())
    except SettingsError as error:
        fix = "\n".join(line for line in (error.hint, _files_words()) if line)
        return how, [fail(MODEL, "files", error.message, fix)]
    except ImportError as error:  # the support file is looked for by what files hold
        fix = (
            "Install it again (`program` above says which): pip install --force-reinstall NAME"
        )
        return how, [fail(MODEL, "files", f"a library cannot be loaded: {error}", fix)]
    if pair is None:
        return how, [
            warn(MODEL, "files", "no model is named and none is bundled", _files_words())
        ]
    ask = Ask(
        model=str(pair.model), support=str(pair.support or ""), backend=values.backend,
        ctx=values.ctx, cpu_blas=values.cpu_blas, support_note=pair.note,
    )  # fmt: skip
    findings = doctor_run.findings("files", ask, "the model's files", _progress)
    return ask if not has_failed(findings) else how, [*findings, *_holders(pair.model)]


def _files_words() -> str:
    return models.WHERE_FROM.replace("\n\n", "\n")


def _holders(model: Path) -> list[Finding]:
    from ds4chat.engine import owner

    held = [str(holder) for holder in owner.holders(model)]
    hint = "Two copies may not fit in memory: wait for it, or --no-wait."
    return [ok(MODEL, "open in", ", ".join(held), hint)] if held else []


def about() -> dict[str, str]:
    """Which program, on which machine."""
    return {
        "ds4chat": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def write_report(findings: Sequence[Finding], name: str) -> Path:
    """Write the report, readable for this person only; `name` empty: one is made.

    Raises:
        SettingsError: the file is there already, or cannot be written.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = Path(name).expanduser() if name else Path(f"ds4chat-report-{stamp}.txt")
    head = ", ".join(f"{key} {value}" for key, value in about().items())
    text = shortened(f"{head}\n\n{render(findings)}\n", settings.path_variables())
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise SettingsError(f"{path}: it is there already", "Name another file.") from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def shortened(text: str, variables: dict[str, str]) -> str:
    """The home folder as ~, under its real name too."""
    home = Path(variables.get("HOME") or Path.home())
    names: list[Any] = sorted({str(home), str(home.resolve())}, key=len, reverse=True)
    for name in names:
        if len(name) > 1:
            text = text.replace(name, "~")
    return text


def _progress(words: str) -> None:
    """One line on standard error that the next one replaces; nothing without a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{f'checking {words} ..' if words else ''}")
        sys.stderr.flush()
