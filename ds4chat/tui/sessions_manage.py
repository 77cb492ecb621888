"""What a person does with whole sessions from inside the chat."""

from __future__ import annotations

from ds4chat.errors import SessionFileError
from ds4chat.store import moves
from ds4chat.tui.sessions_desk import SessionDesk


def save_as(desk: SessionDesk, name: str) -> None:
    """Go on in a session of that name: a copy, or the first of this chat.

    Raises:
        SessionFileError: the name cannot be used, or the disk refuses.
    """
    desk.settle()
    if desk.session is None:
        desk.adopt_loose(desk.library.create(name))
    else:
        desk.session.flush()
        desk.attach(desk.library.copy(desk.session, name))
    desk.chat.say(f"This chat goes on as the session {name}.")


def fork(desk: SessionDesk, at: int) -> None:
    """Stop the reply, then go on after a turn (0: before the first) on a new branch."""

    def carry_out() -> None:
        desk.move(moves.fork(desk.tree, at or None))
        where = f"after turn {at}" if at else "from the beginning"
        desk.chat.say(
            f"Branch {desk.tree.current} goes on {where}; the others are untouched "
            "(/branches, /goto)."
        )

    desk.attempt(carry_out)


def rename(desk: SessionDesk, name: str, new: str) -> str:
    """Give a session another name; returns it. Raises SessionFileError."""
    desk.kv.finish(name)
    return desk.library.rename(name, new, desk.session if _is_open(desk, name) else None)


def delete(desk: SessionDesk, name: str) -> None:
    """Put a session into the trash. Raises SessionFileError."""
    if _is_open(desk, name):
        raise SessionFileError(
            f"you are in the session {name!r}", "/new leaves it; then it can be deleted."
        )
    desk.kv.finish(name)
    desk.library.delete(name)


def strip(desk: SessionDesk, name: str = "") -> int:
    """Drop a session's KV snapshots, the chat's own by default; returns bytes freed.

    Raises:
        SessionFileError: there is no such session, or it cannot be changed.
    """
    if not name and desk.session is None:
        raise SessionFileError("there is no session yet", "/strip NAME")
    chosen = name or (desk.session.name if desk.session is not None else "")
    desk.kv.finish(chosen)
    return desk.library.strip(chosen, desk.session if _is_open(desk, chosen) else None)


def _is_open(desk: SessionDesk, name: str) -> bool:
    return desk.session is not None and desk.session.name == name
