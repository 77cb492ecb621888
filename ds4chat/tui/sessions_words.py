"""What a person is told when a session is opened; its settings come back with it."""

from __future__ import annotations

from collections.abc import Iterable

from ds4chat.protocol.types import ModelInfo
from ds4chat.settings import Settings
from ds4chat.store.records import OptionsSet
from ds4chat.store.session import Session
from ds4chat.tui import sessions_options
from ds4chat.tui.controller import ChatController

_TWO_WAYS = "/takeover makes it yours, /save NAME goes on in a copy."


def announce(
    chat: ChatController, session: Session, system: str, settings: Settings | None
) -> None:
    """Say which session it is and what is odd about it, and take its settings over.

    Args:
        chat: the chat, the session's conversation in it already.
        session: the session.
        system: the system text that this start asked for.
        settings: what this start was asked for.
    """
    n_turns = len(session.tree.path())
    turns = "1 turn" if n_turns == 1 else f"{n_turns} turns"
    branch = f", branch {session.tree.current}" if len(session.tree.branches) > 1 else ""
    chat.say(f"Session {session.name}: {turns}{branch}.")
    for notice in session.notices:
        chat.say(notice, "warning")
    if session.owner is not None:
        chat.say(
            f"It is open in another window ({session.owner}): read-only here. {_TWO_WAYS}",
            "warning",
        )
    leaf = session.tree.leaf
    if leaf is not None and not sessions_options.is_flag(settings, "think"):
        chat.resume_think(leaf.think)
    lines = sessions_options.adopt_system(chat, system, settings)
    if session.tree.options is not None:
        lines += sessions_options.adopt(chat, session.tree.options, settings)
    _say_lines(chat, "Settings that differ", lines)


def tell_model(chat: ChatController, saved: OptionsSet | None, info: ModelInfo) -> None:
    """Say how the loaded model differs from the session's."""
    lines = sessions_options.model_differences(saved, info)
    _say_lines(chat, "The model differs from the session's", lines)


def read_only(owner: object) -> str:
    """Why a message was not sent, where it is, and the two ways on."""
    return (
        f"Not sent: this session is read-only here, {owner} has it. Your message stays in the "
        "prompt. Ctrl+P and takeover make the session yours, then Enter sends it; or /save "
        "NAME goes on in a copy, and Up brings the message back."
    )


def lost(*, is_busy: bool) -> str:
    """What a window is told from which the session was taken."""
    rest = (
        "The reply that runs is shown to its end; /save NAME keeps all of it in a copy, "
        "/takeover takes the session back without its rest."
        if is_busy
        else "/takeover takes it back, /save NAME goes on in a copy."
    )
    return f"Another window goes on with this session now; here it is read-only. {rest}"


def taken(*, is_partial: bool) -> str:
    """What a window is told that took the session over."""
    rest = (
        " It was in the middle of a reply: what that had so far is kept, /retry asks again."
        if is_partial
        else ""
    )
    return f"The session is yours now; the other window only reads.{rest}"


def _say_lines(chat: ChatController, head: str, lines: Iterable[str]) -> None:
    found = [f"  {line}" for line in lines]
    if found:
        chat.say("\n".join([f"{head}:", *found]))
