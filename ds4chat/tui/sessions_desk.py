"""The session behind the chat: every message and event recorded, the KV state kept.

A session is made with the first message. Its transcript is written by a thread of its own; a
disk that fails is told of once, and everything waits in memory. After each reply the engine is
asked for a snapshot, which costs the next prompt a copy and no write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from ds4chat import __version__
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
from ds4chat.store.autosave import Autosaver
from ds4chat.store.journal import TakenOverError
from ds4chat.store.library import Library
from ds4chat.store.records import (
    Asked,
    Entry,
    OptionsSet,
    Record,
    SystemSet,
    TurnEvent,
    Undone,
    is_kept,
)
from ds4chat.store.session import Session, utc_now
from ds4chat.store.tree import Tree
from ds4chat.tui import sessions_redraw, sessions_words
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.problems import sentence
from ds4chat.tui.sessions_hook import SessionsPlan
from ds4chat.tui.sessions_kv import SessionSnapshots
from ds4chat.tui.sessions_making import SessionMaker
from ds4chat.tui.state import Turn

ENDED = "ds4chat was ended during this reply"
DIED = "ds4chat ended during this reply"
TAKEN = "another window took the session over during this reply"

Tell = Callable[[SessionFileError], None]


class SessionDesk:
    """Keeps the chat. Runs on the screen's thread.

    Args:
        chat: the chat; the desk becomes its keeper.
        plan: where sessions lie.
        settings: what this start was asked for.
        on_trouble: told of a failing disk, on another thread.
        on_made: told on another thread that `settle` is to be called.
    """

    def __init__(
        self,
        chat: ChatController,
        plan: SessionsPlan,
        settings: Settings | None,
        on_trouble: Tell,
        on_made: Callable[[], None],
    ) -> None:
        self.chat = chat
        self.plan = plan
        self.settings = settings
        self.library = Library(plan.root, build=__version__)
        self.session: Session | None = None
        self.kv = SessionSnapshots(chat, self.recorded)
        self._on_trouble = on_trouble
        self._maker = SessionMaker(self.library, on_made)
        self._tree = Tree()  # of what is not in a session yet
        self._loose: list[Record] = []
        self._engine_build = ""
        self._has_told = False
        self._is_lost = False  # another window took the session over
        self._owes_differences = False
        chat.keeper = self

    @property
    def tree(self) -> Tree:
        """The conversation as it is recorded."""
        return self.session.tree if self.session is not None else self._tree

    @property
    def is_read_only(self) -> bool:
        """Whether another window writes to the session."""
        return self.session is not None and (self._is_lost or self.session.is_read_only)

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
        options = OptionsSet(
            model=chat.info,
            engine_build=self._engine_build,
            sampling=chat.sampling,
            spec=chat.spec,
            max_tokens=chat.max_tokens,
        )
        if options != self.tree.options:
            self.record(options)
        if chat.conversation.system != self.tree.system:
            self.record(SystemSet(text=chat.conversation.system))
        self._guard(self._compact)
        self._guard(lambda: self.record(self._asked(turn)))
        self._make()

    def _asked(self, turn: Turn) -> Asked:
        return moves.ask(self.tree, turn.question, turn.think, turn.turn_id)

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
            self._guard(lambda: self.record(moves.edit(self.tree, turn_id)))
        self.kv.restore(self.session, self.chat.info)

    def began_anew(self) -> None:
        """Leave the session; the next message begins another."""
        self._leave()

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

    # Recording.

    def record(self, record: Record) -> None:
        """Take a record in; it is written soon."""
        if self.is_read_only and not isinstance(record, TurnEvent):
            return  # that was said: the transcript is another window's
        try:
            if self.session is not None:
                self.session.append(record)
                return
            self._loose.append(record)
            wrong = self._tree.apply(Entry(n=len(self._loose), at=utc_now(), record=record))
            if wrong:
                raise SessionFileError(f"the session was not changed: {wrong}")
        except SessionFileError as error:
            self._tell_unless_lost(error, self.session)

    def recorded(self, session: Session, record: Record) -> None:
        """Take a record of an earlier session in, if it is still open."""
        try:
            session.append(record)
        except SessionFileError as error:
            self._tell_unless_lost(error, session)

    def _tell_unless_lost(self, error: SessionFileError, session: Session | None) -> None:
        """Say what went wrong, but not that a session is read-only: its loss was said."""
        is_lost = session is not None and session.is_read_only
        if isinstance(error, TakenOverError) or not is_lost:
            self.tell(error)

    def break_off(self, message: str) -> None:
        """End the running turn; what was written of it stays."""
        if self.session is None or self.session.is_read_only:
            return
        try:
            self.session.break_off(message)
        except SessionFileError as error:
            self.tell(error)

    def tell(self, error: SessionFileError) -> None:
        """Say what went wrong; the chat goes on."""
        if isinstance(error, TakenOverError):
            self.chat.say(sessions_words.lost(is_busy=self.chat.is_busy))
        else:
            self.chat.say(sentence(error.message, error.hint), "warning")
        self.chat.view.show_now()

    def _make(self) -> None:
        """Begin to make the session if there is none."""
        about = next((r.text for r in self._loose if isinstance(r, Asked)), "")
        if self.session is None and about and not self._maker.is_at_it:
            self._maker.begin(about)

    def settle(self) -> None:
        """Go on in the session that was made; a refusing disk is told of once a session."""
        try:
            session = self._maker.take()
        except SessionFileError as error:
            if not self._has_told:
                self._has_told = True
                hint = f"{error.hint} The chat goes on; each turn tries again.".strip()
                self.tell(SessionFileError(f"this chat is not saved: {error.message}", hint))
            return
        if session is not None:
            self.adopt_loose(session)
            leaf = session.tree.leaf
            if leaf is not None and leaf.finished is not None and not self.chat.is_busy:
                self.kv.save(session, leaf.finished)

    def adopt_loose(self, session: Session) -> None:
        """Go on in a new session with what was said so far."""
        loose, self._loose, self._tree = self._loose, [], Tree()
        self.attach(session)
        for record in loose:
            self.record(record)

    # Changing sessions.

    def attach(self, session: Session) -> None:
        """Let this be the chat's session; the one before is left."""
        if self.session is not session:
            self._leave()
        session.write_through(lambda journal: Autosaver(journal, self._on_trouble))
        self.session = session
        self._has_told = self._is_lost = False

    def _leave(self) -> None:
        self.settle()
        session, self.session, self._is_lost = self.session, None, False
        self._loose, self._tree = [], Tree()
        if session is not None:
            self.kv.leave(session)

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
        leaf = session.tree.leaf
        is_partial = leaf is not None and leaf.finished is None
        if not session.is_read_only:
            if not takeover:
                self._guard(lambda: session.drop_snapshots((), "orphan"))
            self.break_off(TAKEN if takeover else DIED)
        system, self.chat.editing = self.chat.conversation.system, None
        self.redraw()
        sessions_words.announce(self.chat, session, system, self.settings)
        if takeover and not session.is_read_only:
            self.chat.say(sessions_words.taken(is_partial=is_partial))
        if self.chat.phase is Phase.READY and self.chat.info is not None:
            sessions_words.tell_model(self.chat, self.tree.options, self.chat.info)
            self.kv.restore(session, self.chat.info, is_told=True)
        else:
            self._owes_differences = True

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

    def attempt(self, work: Callable[[], object]) -> None:
        """Do what may fail; the chat stops first, and hears of a failure."""
        self.chat.when_idle(lambda: self._guard(work))

    def _guard(self, work: Callable[[], object]) -> None:
        try:
            work()
        except SessionFileError as error:
            self.tell(error)

    # The end.

    def close(self) -> str:
        """End the session; returns its name, empty if nothing was said.

        Raises:
            SessionFileError: something could not be written.
        """
        self.settle()
        if self.session is None:
            self._make()
            made = self._maker.take()
            if made is not None:
                self.adopt_loose(made)
        self._maker.close()
        session, n_lost = self.session, 0
        self.break_off(ENDED)
        if session is not None and not session.is_read_only and not session.flush():
            n_lost = session.n_unwritten
        self._leave()
        self.kv.finish()
        self.library.keep_budget(self.plan.kv_budget_bytes)
        if n_lost and session is not None:
            raise SessionFileError(f"{n_lost} lines of {session.folder} could not be saved")
        return session.name if session is not None and session.tree.turns else ""
