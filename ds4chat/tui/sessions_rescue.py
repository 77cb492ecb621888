"""What becomes of a chat that its disk does not take: a copy elsewhere, and words about it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ds4chat.errors import SessionFileError
from ds4chat.store import rescue
from ds4chat.store.library import Library
from ds4chat.store.names import resume_command, safe_name
from ds4chat.store.records import Asked, Record
from ds4chat.store.rescue import Rescue
from ds4chat.store.session import Session
from ds4chat.store.tree import Tree


class Kept(Protocol):
    """What keeps a chat."""

    session: Session | None
    library: Library
    trouble: str

    @property
    def tree(self) -> Tree:
        """The conversation."""

    @property
    def loose(self) -> tuple[Record, ...]:
        """What is in no session yet."""

    def save_soon(self) -> None:
        """Try again to save what the disk refused."""

    def settle(self) -> None:
        """Go on in the session that was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a session's own folder lacks, and where all of it is.

    Attributes:
        n_turns: turns that it lacks, at least in part.
        where: the session's folder, or that of the sessions if it could not be made.
        why: what the disk said.
        rescue: the copy; None: no place took one.
    """

    n_turns: int
    where: Path
    why: str
    rescue: Rescue | None

    def words(self) -> tuple[str, str]:
        """What happened, and what can be done."""
        why = f": {self.why}" if self.why else ""
        head = f"{self.where}: {turns(self.n_turns)} could not be saved there{why}"
        if self.rescue is None:
            return head, "No other place took a copy either."
        command = resume_command(self.rescue.name, self.rescue.root)
        move = shlex.join(["mv", str(self.rescue.folder), str(self._home)])
        return head, (
            f"All of the chat is in {self.rescue.folder}, where the system may clean up one "
            f"day. {command} goes on with it; {move} puts it with the others once there is "
            "room."
        )

    @property
    def _home(self) -> Path:
        """The folder of sessions, which the copy may be moved to."""
        return self.where.parent if (self.where / "transcript.jsonl").exists() else self.where


def turns(n: int) -> str:
    """A number of turns in words."""
    return "1 turn" if n == 1 else f"{n} turns"


def n_unsaved(desk: Kept) -> int:
    """Turns that the disk does not hold, or not whole."""
    if desk.session is not None:
        return desk.session.n_unsaved_turns
    return len(desk.tree.turns)


def copy_rest(desk: Kept) -> Loss:
    """Copy a chat that could not be saved to another place."""
    where = desk.session.folder if desk.session is not None else desk.library.root
    return Loss(n_turns=n_unsaved(desk), where=where, why=desk.trouble, rescue=copy(desk))


def copy(desk: Kept) -> Rescue | None:
    """Write all of a chat into another place; None: no place takes it."""
    session, loose = desk.session, desk.loose
    if session is not None:
        return rescue.write(session.name, lambda library, name: library.copy(session, name))
    about = next((record.text for record in loose if isinstance(record, Asked)), "")
    return rescue.write(safe_name(about), lambda library, name: _begin(library, name, loose))


def _begin(library: Library, name: str, records: tuple[Record, ...]) -> Session:
    session = library.create(name)
    try:
        for record in records:
            session.append(record)
    except SessionFileError:
        session.close()
        raise
    return session


def may_lose(desk: Kept) -> str:
    """What leaving would cost now, after saving was tried again; empty: nothing."""
    desk.save_soon()
    desk.settle()
    if desk.session is not None and desk.session.flush():
        return ""
    why = f" ({desk.trouble})" if desk.trouble else ""
    head = f"Not saved: {turns(n_unsaved(desk))} of this chat{why}."
    place = copy(desk)  # tried, not believed
    if place is None:
        return (
            f"{head} No other place takes a copy either. Free some space, or /export FILE "
            "writes the chat elsewhere."
        )
    rescue.remove(place)
    return (
        f"{head} Free some space first, or leave: then all of it is copied to "
        f"{place.root.parent}, and the shell says how to go on from there."
    )
