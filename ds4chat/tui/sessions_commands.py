"""Slash commands about sessions and branches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ds4chat import sizes
from ds4chat.errors import SessionFileError, SettingsError
from ds4chat.store import moves
from ds4chat.store.names import resume_command
from ds4chat.tui import sessions_export, sessions_manage, sessions_rows
from ds4chat.tui.command_host import CommandHost, SlashCommand
from ds4chat.tui.sessions_desk import SessionDesk

Run = Callable[[SessionDesk, str], None]
_LISTS = {"/del": "/list shows the names", "/goto": "/branches shows both"}


def _with_desk(run: Run) -> Callable[[CommandHost, str], None]:
    """A command on the desk; what the store refuses is said like any wrong argument."""

    def carry_out(host: CommandHost, args: str) -> None:
        desk = host.sessions
        if desk is None:
            raise SettingsError("this chat is not kept", "The recorded tour saves nothing.")
        try:
            run(desk, args)
        except SessionFileError as error:
            raise SettingsError(error.message, error.hint) from error

    return carry_out


def _wanted(args: str, usage: str) -> str:
    if not args:
        command, _, wanted = usage.partition(" ")
        raise SettingsError(f"{command} wants {wanted}", _LISTS.get(command, usage))
    return args


def _resume(host: CommandHost, args: str) -> None:
    if args:
        _with_desk(lambda desk, name: desk.attempt(lambda: desk.open(name)))(host, args)
    else:
        host.action_sessions()


def _save(desk: SessionDesk, name: str) -> None:
    if name:
        sessions_manage.save_as(desk, name)
    elif desk.session is None:
        desk.chat.say("Nothing was said yet; a chat is saved from its first message on.")
    elif desk.is_read_only:
        desk.chat.say("This session is read-only here; /save NAME goes on in a copy.")
    else:
        is_done = desk.session.flush()
        state = "Saved" if is_done else "Not all could be saved yet"
        root = None if desk.plan.is_usual else desk.plan.root
        desk.chat.say(f"{state}: {resume_command(desk.session.name, root)}")


def _list(desk: SessionDesk, _: str) -> None:
    desk.chat.say(sessions_rows.listing(desk.library.summaries(), time.time()))


def _rename(desk: SessionDesk, args: str) -> None:
    session = desk.session
    if session is None:
        raise SettingsError("nothing was said yet", "/save NAME begins a session of that name.")
    sessions_manage.rename(desk, session.name, _wanted(args, "/rename NAME"))
    desk.chat.say(f"This session is called {session.name} now.")


def _delete(desk: SessionDesk, args: str) -> None:
    name = _wanted(args, "/del NAME")
    sessions_manage.delete(desk, name)
    desk.chat.say(f"Deleted {name}; /undelete {name} brings it back.")


def _undelete(desk: SessionDesk, args: str) -> None:
    name = desk.library.undelete(_wanted(args, "/undelete NAME"))
    desk.chat.say(f"It is back: /resume {name}")


def _strip(desk: SessionDesk, args: str) -> None:
    freed = sessions_manage.strip(desk, args)
    desk.chat.say(f"{sizes.size(freed)} of KV freed; the text is kept.")


def _export(desk: SessionDesk, args: str) -> None:
    wanted = _wanted(args, "/export FILE.md|.json|.html|.svg")
    path = Path(wanted).expanduser()
    name = desk.session.name if desk.session is not None else "ds4chat"
    sessions_export.write(desk.tree, name, path, is_folder=wanted.endswith("/"))
    desk.chat.say(f"Written: {path}")


def _fork(desk: SessionDesk, args: str) -> None:
    if args and not (args.isascii() and args.isdecimal()):
        raise SettingsError(f"/fork: {args!r:.60} is not a turn", "/branches numbers them.")
    leaf = desk.tree.leaf
    if leaf is None and not args:
        raise SettingsError("there is no turn to fork from", "Ask something first.")
    sessions_manage.fork(desk, int(args[:18]) if args else leaf.id if leaf is not None else 0)


def _branches(desk: SessionDesk, _: str) -> None:
    desk.chat.say(sessions_rows.branches(desk.tree))


def _branch(desk: SessionDesk, args: str) -> None:
    desk.require_mine()
    desk.record(moves.rename_branch(desk.tree, _wanted(args, "/branch NAME")))
    desk.chat.say(f"This branch is called {desk.tree.current} now.")


def _goto(desk: SessionDesk, args: str) -> None:
    where = _wanted(args, "/goto BRANCH|TURN")

    def go() -> None:
        desk.move(moves.goto(desk.tree, where))
        desk.chat.say(f"You are on the branch {desk.tree.current}.")

    desk.attempt(go)


def _takeover(desk: SessionDesk, _: str) -> None:
    session = desk.session
    if session is None or not desk.is_read_only:
        raise SettingsError("this session is yours already")
    desk.attempt(lambda: desk.open(session.name, takeover=True))


def _row(name: str, summary: str, run: Run, args: str = "") -> SlashCommand:
    return SlashCommand(name=name, args=args, summary=summary, run=_with_desk(run))


ROWS = (
    SlashCommand(name="resume", args="[NAME]", summary="go on with a session", run=_resume),
    _row("save", "save now; with a name: go on in a copy", _save, "[NAME]"),
    _row("list", "saved sessions", _list),
    _row("rename", "rename this session", _rename, "NAME"),
    _row("del", "delete a session", _delete, "NAME"),
    _row("undelete", "bring a deleted session back", _undelete, "NAME"),
    _row("strip", "drop the KV snapshots, keep the text", _strip, "[NAME]"),
    _row("export", "write the chat to a file", _export, "FILE"),
    _row("fork", "go on from an earlier turn", _fork, "[N]"),
    _row("branches", "the branches as a tree", _branches),
    _row("branch", "name this branch", _branch, "NAME"),
    _row("goto", "another branch, or any turn", _goto, "BRANCH|N"),
    _row("takeover", "write here, not in the other window", _takeover),
)
