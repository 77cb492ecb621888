"""A chat that is kept, for the tests of sessions."""

from __future__ import annotations

from pathlib import Path

from ds4chat.demo import Reply, Script
from ds4chat.protocol.commands import SaveSnapshot
from ds4chat.store.library import Library
from ds4chat.store.tree import Tree
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.sessions_desk import SessionDesk
from ds4chat.tui.sessions_hook import SessionsPlan
from tests.pilot.driver import Chat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4
SCRIPT = Script(
    replies=(Reply(answer="First **answer**."), Reply(answer="Second."), Reply(answer="Third."))
)


def kept(root: Path, resume: str = "", **rest: object) -> ChatOptions:
    plan = SessionsPlan(root=root, is_usual=False, resume=resume)
    return ChatOptions(is_animated=False, sessions=plan, **rest)  # type: ignore[arg-type]


def desk_of(chat: Chat) -> SessionDesk:
    desk = chat.screen.sessions
    assert desk is not None
    return desk


async def saved(chat: Chat) -> str:
    """Wait for the last snapshot, end the session, return its name."""
    desk = desk_of(chat)
    await chat.until(lambda: desk.session)
    session = desk.session
    assert session is not None
    folder = str(session.snapshots_dir)
    n_asked = sum(command.folder == folder for command in chat.engine.sent(SaveSnapshot))
    await chat.until(lambda: len(session.tree.snapshots) >= n_asked)
    return desk.close()


def on_disk(root: Path, name: str) -> Tree:
    return Library(root).read(name).tree
