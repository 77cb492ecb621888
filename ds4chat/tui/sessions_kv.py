"""The KV snapshots of the chat's session: asked for after each reply, given back on resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from ds4chat.errors import SessionFileError
from ds4chat.protocol.commands import RestoreSnapshot, SaveSnapshot
from ds4chat.protocol.events import (
    Done,
    Refused,
    SnapshotRestored,
    SnapshotSaved,
    TurnFinished,
)
from ds4chat.protocol.types import FinishReason, ModelInfo
from ds4chat.store import records, snapshots
from ds4chat.store.session import Session
from ds4chat.tui import sessions_redraw
from ds4chat.tui.controller import ChatController
from ds4chat.tui.problems import sentence

MAX_TRIED = 8
"""Snapshots that a restore looks at, newest first."""

_SAVED = (
    FinishReason.STOP,
    FinishReason.LENGTH,
    FinishReason.CANCELLED,
    FinishReason.CONTEXT_FULL,
)

Recorded = Callable[[Session, records.Record], None]
Held = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Save:
    """A snapshot that the engine is asked for."""

    session: Session
    name: str
    turn_id: int


@dataclass(frozen=True, slots=True)
class _Restore:
    """A snapshot that the engine looks for, and who hears of the outcome."""

    is_told: bool
    on_held: Held | None


class SessionSnapshots:
    """Asks the engine for snapshots and records what it reports.

    Args:
        chat: whose engine and conversation it is.
        record: takes a record for a session.
    """

    def __init__(self, chat: ChatController, record: Recorded) -> None:
        self._chat = chat
        self._record = record
        self._saves: dict[int, _Save] = {}
        self._restores: dict[int, _Restore] = {}  # by request id, oldest first
        self._left: list[Session] = []  # sessions that wait for their last snapshot
        self._has_told = False

    def save(self, session: Session | None, event: TurnFinished) -> None:
        """Ask for a snapshot of the state after a reply."""
        if session is None or session.is_read_only or event.reason not in _SAVED:
            return
        turn = session.tree.turns[event.turn_id]
        number = self._chat.request()
        name = f"t{event.turn_id}"
        self._saves[number] = _Save(session, name, event.turn_id)
        self._chat.link.send(
            SaveSnapshot(
                request_id=number,
                folder=str(session.snapshots_dir),
                name=name,
                before_reply=bool(turn.reasoning) and not self._chat.keep_reasoning,
            )
        )

    def restore(
        self,
        session: Session | None,
        info: ModelInfo | None,
        *,
        is_told: bool = False,
        on_held: Held | None = None,
    ) -> bool:
        """Let the engine go on from the newest snapshot of the branch that fits.

        Args:
            session: the chat's session.
            info: the loaded model; None: there is none yet.
            is_told: whether the person hears of the outcome.
            on_held: called later with the number of tokens that the snapshot held, 0: none
                fits and the engine holds what it held. Then the longest are tried first.

        Returns:
            Whether the engine was asked.
        """
        turns = self._chat.conversation.turns
        if session is None or session.is_read_only or info is None or not turns:
            return False
        others = sessions_redraw.fit_ids(session.tree, turns, info)
        if others:
            self._chat.say(
                f"Replies of {', '.join(others)} are read as text: their tokens are not "
                f"{info.name}'s."
            )
        names = usable(session, longest_first=on_held is not None)
        if not names:
            if is_told:
                self._chat.say("No KV snapshot: the next message reads the conversation again.")
            return False
        number = self._chat.request()
        self._restores[number] = _Restore(is_told, on_held)
        self._chat.link.send(
            RestoreSnapshot(
                request_id=number,
                folder=str(session.snapshots_dir),
                names=names[:MAX_TRIED],
                messages=self._chat.conversation.messages(),
                think=self._chat.think,
                keep_reasoning=self._chat.keep_reasoning,
            )
        )
        return True

    def report(self, event: Done | Refused | SnapshotSaved | SnapshotRestored) -> bool:
        """Take in an answer; False: it is not about a snapshot."""
        match event:
            case SnapshotSaved():
                self._saved(event)
            case SnapshotRestored():
                self._restored(event)
            case Done() | Refused() if event.request_id in self._saves:
                self._answered(self._saves.pop(event.request_id), event)
            case Done() | Refused() if event.request_id in self._restores:
                restore = self._restores.pop(event.request_id)
                if isinstance(event, Refused):
                    self._not_restored(restore, event.message)
            case _:
                return False
        return True

    def _saved(self, event: SnapshotSaved) -> None:
        for save in self._saves.values():
            if (str(save.session.snapshots_dir), save.name) == (event.folder, event.name):
                record = records.SnapshotSaved(
                    name=event.name,
                    n_tokens=event.n_tokens,
                    token_hash=event.token_hash,
                    turn_id=save.turn_id,
                    parent=event.parent,
                    n_bytes=event.n_bytes,
                )
                self._record(save.session, record)
                return

    def _restored(self, event: SnapshotRestored) -> None:
        self._chat.n_context = event.n_tokens
        restore = next(iter(self._restores.values()), None)  # answers come in order
        if restore is not None and restore.on_held is not None:
            restore.on_held(event.n_tokens)
        elif restore is not None and restore.is_told:
            words = f"KV state restored: {event.n_tokens:,} tokens need not be read again."
            self._chat.say(" ".join([words, *(f"{n.rstrip('.')}." for n in event.notices)]))
        self._chat.view.show_now()

    def _not_restored(self, restore: _Restore, why: str) -> None:
        if restore.on_held is not None:
            restore.on_held(0)
        elif restore.is_told:
            self._chat.say(
                f"The KV snapshot is not used: {why}. The transcript is kept; the next message "
                "reads it again.",
                "warning",
            )

    def _answered(self, save: _Save, event: Done | Refused) -> None:
        if isinstance(event, Done):
            self._has_told = False
        elif not self._has_told and self._chat.link.is_alive:
            self._has_told = True
            hint = event.hint or "The chat goes on."
            self._chat.say(sentence(f"no KV snapshot: {event.message}", hint), "warning")
        self._close_left(save.session)

    def leave(self, session: Session) -> None:
        """Close a session, now or after its last snapshot is recorded."""
        self._left.append(session)
        self._close_left(session)

    def finish(self, name: str | None = None) -> None:
        """Close the sessions that still wait (of that name only, if one is given)."""
        for session in [s for s in self._left if name in (None, s.name)]:
            self._saves = {n: s for n, s in self._saves.items() if s.session is not session}
            self._close_left(session)

    def _close_left(self, session: Session) -> None:
        if session not in self._left or any(
            save.session is session for save in self._saves.values()
        ):
            return
        self._left.remove(session)
        with contextlib.suppress(SessionFileError):  # a failing disk was told of already
            session.close()


def usable(session: Session, *, longest_first: bool = False) -> tuple[str, ...]:
    """Names of the branch's snapshots that are on the disk, newest or longest first."""
    absent = set(snapshots.missing(session.folder, session.tree))
    found = snapshots.candidates(session.tree)
    if longest_first:
        found.sort(key=lambda record: -record.n_tokens)
    return tuple(record.name for record in found if record.name not in absent)
