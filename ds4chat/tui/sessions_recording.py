"""Records a conversation: in memory at once, on the disk soon, elsewhere where it refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ds4chat import __version__
from ds4chat.errors import SessionFileError
from ds4chat.store import moves
from ds4chat.store.autosave import Autosaver
from ds4chat.store.journal import TakenOverError
from ds4chat.store.library import Library
from ds4chat.store.records import Asked, Entry, Record, TurnEvent
from ds4chat.store.session import Session, utc_now
from ds4chat.store.tree import Tree
from ds4chat.tui import sessions_rescue, sessions_words
from ds4chat.tui.controller import ChatController
from ds4chat.tui.problems import sentence
from ds4chat.tui.sessions_hook import SessionsPlan
from ds4chat.tui.sessions_kv import SessionSnapshots
from ds4chat.tui.sessions_making import SessionMaker
from ds4chat.tui.sessions_rescue import Loss

ENDED = "ds4chat was ended during this reply"


def _nothing() -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskReports:
    """Who hears of the disk. Called on other threads; must not block.

    Attributes:
        on_trouble: a transcript could not be written.
        on_made: `settle` is to be called.
        on_relief: after a trouble all is written.
    """

    on_trouble: Callable[[SessionFileError], None]
    on_made: Callable[[], None]
    on_relief: Callable[[], None] = _nothing


class SessionRecorder:
    """The session of the chat, or what will be one. Runs on the screen's thread.

    Args:
        chat: what is told of troubles.
        plan: where sessions lie.
        heard: told of disks, on other threads.
    """

    def __init__(self, chat: ChatController, plan: SessionsPlan, heard: DiskReports) -> None:
        self.chat = chat
        self.plan = plan
        self.library = Library(plan.root, build=__version__)
        self.session: Session | None = None
        self.kv = SessionSnapshots(chat, self.recorded)
        self.is_refused = False  # the disk did not take the session; that was told
        self.loss: Loss | None = None  # what the session that was left lacks
        self.trouble = ""  # why the disk refused last
        self._heard = heard
        self._maker = SessionMaker(self.library, heard.on_made)
        self._tree = Tree()  # of what is not in a session yet
        self._loose: list[Record] = []
        self._is_lost = False  # another window took the session over

    @property
    def tree(self) -> Tree:
        """The conversation as it is recorded."""
        return self.session.tree if self.session is not None else self._tree

    @property
    def is_read_only(self) -> bool:
        """Whether another window writes to the session."""
        return self.session is not None and (self._is_lost or self.session.is_read_only)

    @property
    def is_unsaved(self) -> bool:
        """Whether the disk refused something of this chat that it does not hold yet."""
        if self.session is not None:
            return self.session.is_failing
        return self.is_refused and bool(self._tree.turns)

    @property
    def loose(self) -> tuple[Record, ...]:
        """What is in no session yet."""
        return tuple(self._loose)

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
        """End the running turn, also of a session in the making; what came of it stays."""
        end = None if self.is_read_only else moves.broken_off(self.tree, message)
        if end is not None:
            self.record(end)

    def tell(self, error: SessionFileError) -> None:
        """Say what went wrong; the chat goes on."""
        self._note(error)
        if isinstance(error, TakenOverError):
            self.chat.say(sessions_words.lost(is_busy=self.chat.is_busy))
        else:
            self.chat.say(sentence(error.message, error.hint), "warning")
        self.chat.view.show_now()

    def _note(self, error: SessionFileError) -> None:
        if isinstance(error.__cause__, OSError):
            self.trouble = os.strerror(error.__cause__.errno or 0)

    def _troubled(self, error: SessionFileError) -> None:
        """On the thread that writes: who leaves before the screen hears of it is told why."""
        self._note(error)
        self._heard.on_trouble(error)

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
            if not self.is_refused:
                self.is_refused = True
                hint = f"{error.hint} The chat goes on; each turn tries again.".strip()
                failure = SessionFileError(f"this chat is not saved: {error.message}", hint)
                failure.__cause__ = error.__cause__
                self.tell(failure)
            return
        if session is not None:
            was_refused = self.is_refused
            self.adopt_loose(session)
            if was_refused:
                self.relieved()
            leaf = session.tree.leaf
            if leaf is not None and leaf.finished is not None and not self.chat.is_busy:
                self.kv.save(session, leaf.finished)

    def relieved(self) -> None:
        """Say that saving works again."""
        if not self.is_unsaved:
            self.chat.say("Saving works again: all of this chat is saved.")
            self.chat.view.show_now()

    def save_soon(self) -> None:
        """Try again to save what the disk refused; nothing waits for it."""
        if self.session is None:
            self._make()
        else:
            self.session.flush_soon()

    def adopt_loose(self, session: Session) -> None:
        """Go on in a new session with what was said so far."""
        loose, self._loose, self._tree = self._loose, [], Tree()
        self.attach(session)
        for record in loose:
            self.record(record)

    def attach(self, session: Session) -> None:
        """Let this be the chat's session; the one before is left."""
        if self.session is not session:
            self.leave()
        session.write_through(
            lambda journal: Autosaver(journal, self._troubled, self._heard.on_relief)
        )
        self.session = session
        self.is_refused = self._is_lost = False

    def leave(self, *, is_end: bool = False) -> None:
        """Leave the session; what its disk refused is copied elsewhere.

        Args:
            is_end: the program ends, and the shell says it.
        """
        self.settle()
        self.loss = sessions_rescue.copy_rest(self) if self.is_unsaved else None
        session, self.session, self._is_lost = self.session, None, False
        self._loose, self._tree, self.is_refused = [], Tree(), False
        if session is not None:
            self.kv.leave(session)
        if self.loss is not None and not is_end:
            self.chat.say(sentence(*self.loss.words()), "warning")

    def attempt(self, work: Callable[[], object]) -> None:
        """Do what may fail; the chat stops first, and hears of a failure."""
        self.chat.when_idle(lambda: self.attempt_now(work))

    def attempt_now(self, work: Callable[[], object]) -> None:
        """Do what may fail; the chat hears of a failure."""
        try:
            work()
        except SessionFileError as error:
            self.tell(error)

    def close(self) -> str:
        """End the session; returns its name, empty if nothing was said.

        Raises:
            SessionFileError: something could not be written.
        """
        self.settle()
        self._make()
        self.settle()
        self._maker.close()
        self.break_off(ENDED)
        session = self.session
        if session is not None and not session.is_read_only:
            session.flush()
        self.leave(is_end=True)
        self.kv.finish()
        self.library.keep_budget(self.plan.kv_budget_bytes)
        if self.loss is not None:
            raise SessionFileError(*self.loss.words())
        return session.name if session is not None and session.tree.turns else ""
