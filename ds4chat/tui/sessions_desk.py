"""The session behind the chat: every message and event recorded, the KV state kept.

A session is made with the first message. Its transcript is written by a thread of its own; a
disk that fails is told of once, and everything waits in memory. After each reply the engine is
asked for a snapshot, which costs the next prompt a copy and no write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from ds4chat.errors import SessionFileError
from ds4chat.protocol.events import (
    Done,
    EngineFailed,
    Event,
    Hello,
    ModelReady,
    Notice,
    Refused,
    SnapshotRestored,
    SnapshotSaved,
    TurnFinished,
)
from ds4chat.protocol.types import ModelInfo
from ds4chat.settings import Settings
from ds4chat.store import lock, moves
from ds4chat.store.records import (
    Asked,
    Record,
    SystemSet,
    TurnEvent,
    Undone,
    is_kept,
)
from ds4chat.store.tree import Tree
from ds4chat.tui import (
    sessions_opening,
    sessions_options,
    sessions_redraw,
    sessions_words,
)
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.sessions_hook import SessionsPlan
from ds4chat.tui.sessions_recording import DiskReports, SessionRecorder
from ds4chat.tui.state import Turn


def _asked(tree: Tree, turn: Turn) -> Asked:
    return moves.ask(tree, turn.question, turn.think, turn.turn_id)


class SessionDesk(SessionRecorder):
    """Keeps the chat. Runs on the screen's thread.

    Args:
        chat: the chat; the desk becomes its keeper.
        plan: where sessions lie.
        settings: what this start was asked for.
        heard: told of disks, on other threads.
    """

    def __init__(
        self,
        chat: ChatController,
        plan: SessionsPlan,
        settings: Settings | None,
        heard: DiskReports,
    ) -> None:
        super().__init__(chat, plan, heard)
        self.settings = settings
        self._engine_build = ""
        self._owes_differences = False
        chat.keeper = self

    # What the chat tells.

    def may_ask(self) -> bool:
        """Whether a message may be sent; says why not."""
        session = self.session
        taker = lock.holder(session.folder) if session is not None else None
        self._is_lost = self._is_lost or (taker is not None and taker.pid != os.getpid())
        if session is not None and self.is_read_only:
            owner = session.owner or taker or "another window"
            self.chat.say(sessions_words.read_only(owner), "warning")
            return False
        try:
            self.tree.messages()
        except SessionFileError as error:
            self.tell(error)
            return False
        return True

    def asked(self, turn: Turn) -> None:
        """Record a message, and make its session if there is none yet."""
        chat = self.chat
        options = sessions_options.in_force(chat, self._engine_build)
        if options != self.tree.options:
            self.record(options)
        if chat.conversation.system != self.tree.system:
            self.record(SystemSet(text=chat.conversation.system))
        self.attempt_now(self._compact)
        self.attempt_now(lambda: self.record(_asked(self.tree, turn)))
        self._make()

    def _compact(self) -> None:
        """Note which turns are no longer sent, or are sent again: on a branch of their own."""
        talk, tree = self.chat.conversation, self.tree
        sent = talk.turns[talk.n_dropped : -1]  # the last one is being asked
        start = sent[0].turn_id if talk.n_dropped and sent else None
        if tree.leaf is not None and start != tree.branch.start:
            fork = moves.fork(tree, tree.leaf.id, why="compact")
            self.record(replace(fork, start=start))

    def compacted(self, on_held: Callable[[int], None]) -> bool:
        """Go on from the KV state of the turns that are sent now, if a snapshot has it."""
        is_ready = self.chat.phase is Phase.READY
        return is_ready and self.kv.restore(self.session, self.chat.info, on_held=on_held)

    def rewound(self, turn_id: int) -> None:
        """Take turns back: the last one from its branch, earlier ones by a new branch."""
        turn = self.tree.turns.get(turn_id)
        if turn is None:
            return
        if self.tree.branch.leaf == turn_id:
            parent = None if turn_id == self.tree.branch.start else turn.parent
            self.record(Undone(branch=self.tree.current, leaf=parent))
        else:
            self.attempt_now(lambda: self.record(moves.edit(self.tree, turn_id)))
        self.kv.restore(self.session, self.chat.info)

    def began_anew(self) -> None:
        """Leave the session; the next message begins another."""
        self.leave()

    # What the engine tells.

    def report(self, event: Event) -> bool:
        """Take in an event before the chat does; True: it is not for the chat."""
        if isinstance(event, Done | Refused | SnapshotSaved | SnapshotRestored):
            return self.kv.report(event)
        if isinstance(event, Hello):
            self._engine_build = event.build
        elif isinstance(event, ModelReady):
            self._model_ready(event.info)
        elif isinstance(event, EngineFailed) and event.fatal:
            self.break_off(event.message)
        elif is_kept(event):
            assert isinstance(event, TurnEvent)
            self._take(event)
        return False

    def _take(self, event: TurnEvent) -> None:
        known = event.turn_id in self.tree.turns
        if not known and not (isinstance(event, Notice) and self.session is not None):
            return
        self.record(event)
        if isinstance(event, TurnFinished):
            self._make()
            self.kv.save(self.session, event)

    def _model_ready(self, info: ModelInfo) -> None:
        """A fresh engine holds nothing: give it the session's KV state."""
        if self._owes_differences:
            self._owes_differences = False
            sessions_words.tell_model(self.chat, self.tree.options, info)
            self.kv.restore(self.session, info, is_told=True)
        else:
            self.kv.restore(self.session, info)

    # Changing sessions.

    def open(self, name: str, *, takeover: bool = False) -> None:
        """Go on with a saved session.

        Raises:
            SessionFileError: it cannot be opened; the chat stays where it is.
        """
        current = self.session
        if current is not None and current.name == name and not self.is_read_only:
            self.chat.say(f"The session {name!r} is the one that you are in.")
            return
        self.settle()
        self.kv.finish(name)
        session = self.library.open(name, takeover=takeover)
        self.attach(session)
        if not session.is_read_only and not takeover:
            self.attempt_now(lambda: session.drop_snapshots((), "orphan"))
        self._owes_differences = not sessions_opening.show(
            self, session, self.settings, takeover=takeover
        )

    def require_mine(self) -> None:
        """Refuse a change of a session that is read-only here. Raises SessionFileError."""
        if self.is_read_only:
            raise SessionFileError(
                "the session is read-only here",
                "/takeover makes it yours, /save NAME copies it.",
            )

    def redraw(self) -> None:
        """Show the current branch."""
        chat = self.chat
        sessions_redraw.show(self.tree, chat.conversation, chat.view.transcript)
        chat.reset_figures()
        chat.view.redrawn()

    def move(self, record: Record) -> None:
        """Change branch and show it; the engine goes on from its KV state.

        Raises:
            SessionFileError: another window writes to the session.
        """
        self.require_mine()
        self.record(record)
        self.redraw()
        self.kv.restore(self.session, self.chat.info)
