"""`ds4chat sessions WHAT`: saved sessions without opening the chat.

Exit status: 0 ok, 1 refused or failed, 2 wrong arguments or a path that cannot be read.
Text of sessions is cleaned of control characters before it is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ds4chat import paths, settings
from ds4chat.cli import checks
from ds4chat.cli.parser import Parser
from ds4chat.errors import Ds4Error, SessionFileError, SettingsError
from ds4chat.protocol.types import Source
from ds4chat.sizes import size
from ds4chat.smallfile import write_whole
from ds4chat.store import export as exporting
from ds4chat.store.clean import clean, clean_line
from ds4chat.store.export.look import Look
from ds4chat.store.export.pieces import receipt
from ds4chat.store.files import trouble
from ds4chat.store.library import Library
from ds4chat.store.names import resume_command
from ds4chat.store.session import Session
from ds4chat.store.summary import Summary

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def run(argv: Sequence[str]) -> int:
    """Run one of the commands; see the module's docstring for the exit status."""
    options = make_parser().parse_args(argv)
    try:
        library = Library(_folder(options.sessions))
        command: Callable[[Library, argparse.Namespace], None] = options.command
        command(library, options)
    except Ds4Error as error:
        print(f"ds4chat: {clean_line(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"  {clean_line(error.hint)}", file=sys.stderr)
        is_usage = isinstance(error, SettingsError) or isinstance(error.__cause__, OSError)
        return 2 if is_usage else 1
    return 0


def _folder(named: str | None) -> Path:
    if named is not None:
        checks.sessions_folder(named)
        return Path(named)
    return paths.UserDirs.from_variables(settings.path_variables()).sessions_root


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(prog="ds4chat sessions", description="List and manage saved sessions.")
    where = "where they lie (default: your data folder)"
    parser.add_argument("--sessions", metavar="DIR", help=where)
    kinds = parser.add_kinds()

    def add(name: str, command: Callable[[Library, argparse.Namespace], None], words: str,
            *names: str) -> Parser:  # fmt: skip
        found = kinds.add_parser(name, help=words, description=words)
        found.add_argument("--sessions", metavar="DIR", help=where, default=argparse.SUPPRESS)
        for each in names:
            found.add_argument(each, metavar=each.upper())
        found.set_defaults(command=command)
        return found

    listing = add("list", _list, "list them, the one used last first")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("--deleted", action="store_true", help="list the deleted ones")
    show = add("show", _show, "print what was said", "name")
    show.add_argument("--branch", metavar="BRANCH", help="another branch than the current one")
    show.add_argument("--tree", action="store_true", help="print the branches only")
    add("search", _search, "find a text in what was said", "text")
    add("rename", _rename, "give one another name", "name", "new")
    add("delete", _delete, "delete one; `undelete` brings it back", "name")
    add("undelete", _undelete, "bring a deleted one back", "name")
    add("strip", _strip, "delete the KV snapshots and keep the text", "name")
    out = add("export", _export, "write one as Markdown, JSON, HTML or SVG", "name")
    out.add_argument(
        "--format", choices=exporting.FORMATS, help="default: by the file's suffix"
    )
    out.add_argument("--branch", metavar="BRANCH", help="another branch than the current one")
    out.add_argument("--theme", default="", metavar="THEME", help="colours of HTML and SVG")
    out.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    out.add_argument("--force", action="store_true", help="replace FILE if it is there")
    add("path", _path, "print a session's folder", "name")
    return parser


def _list(library: Library, options: argparse.Namespace) -> None:
    if options.deleted:
        print("\n".join(map(clean_line, library.trash.names())) or "the trash is empty")
        return
    found = library.summaries()
    if options.json:
        rows = [dataclasses.asdict(s) | {"path": str(s.path)} for s in found]
        print(json.dumps(rows, indent=2))
    elif not found:
        print(f"no sessions in {clean_line(str(library.root))}")
    else:
        now_s = time.time()
        print("\n".join(_row(summary, now_s) for summary in found))


def _row(summary: Summary, now_s: float) -> str:
    about = summary.trouble or summary.first
    kv = f" + {size(summary.kv_bytes)} KV" if summary.kv_bytes else ""
    parts = (
        "1 turn" if summary.n_turns == 1 else f"{summary.n_turns} turns",
        size(summary.text_bytes) + kv,
        f"{_age(now_s - summary.changed_s)} ago",
        summary.model,
    )
    head = " · ".join(part for part in parts if part)
    return f"{clean_line(summary.name)}\n    {head}\n    {about}"


def _show(library: Library, options: argparse.Namespace) -> None:
    session = library.read(options.name)
    _warn(session)
    if options.tree:
        print("\n".join(_branches(session)))
        return
    tree = session.tree
    if options.branch is not None and options.branch not in tree.branches:
        raise SessionFileError(
            f"there is no branch {options.branch!r:.60}", "--tree lists the branches."
        )
    if tree.system:
        print(f"system: {clean(tree.system)}\n")
    for turn in tree.path(options.branch):
        print(f"you ({turn.id}): {'(lost)' if turn.is_lost else clean(turn.question)}\n")
        if turn.has_reply:
            print(f"ds4: {clean(turn.answer_text)}")
            print(f"-- {receipt(turn)}\n")
        if turn.damage:
            print(f"-- damaged: {clean_line(turn.damage)}\n")


def _branches(session: Session) -> list[str]:
    tree = session.tree
    rows = []
    for branch in tree.branches.values():
        mark = "*" if branch.name == tree.current else " "
        ids = " ".join(str(turn.id) for turn in tree.path(branch.name)) or "empty"
        base = f" (from {clean_line(branch.base)})" if branch.base else ""
        rows.append(f"{mark} {clean_line(branch.name)}{base}: {ids}")
    gone = " ".join(str(turn.id) for turn in tree.taken_back())
    return [*rows, f"  (taken back): {gone}"] if gone else rows


def _warn(session: Session) -> None:
    for notice in session.notices:
        print(f"ds4chat: {clean_line(notice)}", file=sys.stderr)
    if session.owner is not None:
        print(f"ds4chat: it is open in {session.owner}", file=sys.stderr)


def _search(library: Library, options: argparse.Namespace) -> None:
    if not options.text:
        raise SettingsError("the text to find is empty", "ds4chat sessions search TEXT")
    n_found = 0
    for name, hit in library.search(options.text):
        n_found += 1
        print(f"{clean_line(name)}, turn {hit.turn_id}, {hit.who}: {hit.excerpt}")
    if not n_found:
        raise SessionFileError(f"{clean_line(options.text, 60)!r} was not said in any session")


def _rename(library: Library, options: argparse.Namespace) -> None:
    print(f"renamed to {library.rename(options.name, options.new)}")


def _delete(library: Library, options: argparse.Namespace) -> None:
    library.delete(options.name)
    print(f"deleted; `ds4chat sessions undelete {options.name}` brings it back")


def _undelete(library: Library, options: argparse.Namespace) -> None:
    name = library.undelete(options.name)
    root = library.root if options.sessions else None
    print(f"it is back: {resume_command(name, root)}")


def _strip(library: Library, options: argparse.Namespace) -> None:
    freed = library.strip(options.name)
    print(f"{size(freed)} freed; the text is kept and is read again when you resume")


def _export(library: Library, options: argparse.Namespace) -> None:
    session = library.read(options.name)
    _warn(session)
    output: Path | None = options.output
    kind = options.format or _kind(output)
    look = _look(options.theme) if kind in ("html", "svg") else None
    text = exporting.export(session.tree, session.name, kind, look, options.branch)
    if output is None:
        sys.stdout.write(text)
        return
    _write(output, text, force=options.force)
    print(f"written: {clean_line(str(output))}", file=sys.stderr)


def _kind(output: Path | None) -> str:
    """The format that a file's suffix asks for. Raises SettingsError."""
    if output is None:
        return "markdown"
    if not output.name:
        raise SettingsError(f"-o names no file: {output}", "For example: -o chat.md")
    kind = exporting.SUFFIXES.get(output.suffix.lower())
    if kind is None:
        what = f"the suffix {output.suffix!r} names no format" if output.suffix else "no suffix"
        example = clean_line(str(output.with_name(f"{output.stem or 'chat'}.md")))
        raise SettingsError(
            f"{output}: {what}; there are {', '.join(exporting.SUFFIXES)}",
            f"For example: -o {example}, or --format {exporting.FORMATS[0]}",
        )
    return kind


def _look(theme_name: str) -> Look:
    from ds4chat.tui import themes

    theme = themes.pick(themes.load_themes([paths.themes_dir()]), theme_name)
    return Look(
        sources={source: theme.palette.by_source(source) for source in Source},
        background=theme.screen.background or "#000000",
        foreground=theme.screen.foreground or "#d0d0d0",
        dim=theme.screen.secondary or "#808080",
    )


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        write_whole(path, text, is_new=not force)
    except FileExistsError as error:
        raise SessionFileError(
            f"{path}: it is there already", "--force replaces it."
        ) from error
    except OSError as error:
        raise trouble("cannot be written", path, error) from error


def _path(library: Library, options: argparse.Namespace) -> None:
    print(library.path(options.name))


def _age(age_s: float) -> str:
    for scale, unit in _UNITS:
        if age_s >= scale:
            return f"{age_s / scale:.0f} {unit}"
    return "under a minute"
