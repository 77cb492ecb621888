"""Shows a session that was opened and says what is to be said of it."""

from __future__ import annotations

from typing import Protocol

from ds4chat.settings import Settings
from ds4chat.store.session import Session
from ds4chat.tui import sessions_words
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.sessions_kv import SessionSnapshots

DIED = "ds4chat ended during this reply"
TAKEN = "another window took the session over during this reply"


class Desk(Protocol):
    """What keeps the chat."""

    chat: ChatController
    kv: SessionSnapshots

    def break_off(self, message: str) -> None:
        """End the running turn; what was written of it stays."""

    def redraw(self) -> None:
        """Show the current branch."""


def show(desk: Desk, session: Session, settings: Settings | None, *, takeover: bool) -> bool:
    """Put the desk's session on the screen, its settings into the chat, its KV into the engine.

    Args:
        desk: whose session it is now.
        session: the session.
        settings: what this start was asked for.
        takeover: it was taken from another window.

    Returns:
        Whether the model could be compared with the session's; not before it is loaded.
    """
    chat, leaf = desk.chat, session.tree.leaf
    is_partial = leaf is not None and leaf.finished is None
    if not session.is_read_only:
        desk.break_off(TAKEN if takeover else DIED)
    system, chat.editing = chat.conversation.system, None
    desk.redraw()
    sessions_words.announce(chat, session, system, settings)
    if takeover and not session.is_read_only:
        chat.say(sessions_words.taken(is_partial=is_partial))
    if chat.phase is not Phase.READY or chat.info is None:
        return False
    sessions_words.tell_model(chat, session.tree.options, chat.info)
    desk.kv.restore(session, chat.info, is_told=True)
    return True
