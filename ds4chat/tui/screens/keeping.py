"""The part of the chat screen that keeps sessions."""

from __future__ import annotations

from textual.message import Message
from textual.timer import Timer

from ds4chat.errors import SessionFileError
from ds4chat.protocol.events import Event, ModelReady, TurnFinished
from ds4chat.tui import sessions_manage
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens.preferences import PreferenceScreen
from ds4chat.tui.screens.sessions import SessionsScreen
from ds4chat.tui.sessions_desk import SessionDesk
from ds4chat.tui.sessions_recording import DiskReports

SAVE_AGAIN_S = 5.0  # how often a disk that refused is tried again
REWIND_ARMED_S = 1.0  # how long the first of two Esc counts


class SessionTrouble(Message):
    """A transcript could not be written. Posted from the thread that writes it."""

    def __init__(self, error: SessionFileError) -> None:
        super().__init__()
        self.error = error


class SessionMade(Message):
    """A session was made or refused. Posted from the thread that made it."""


class SessionRelief(Message):
    """After a trouble all is written. Posted from the thread that writes."""


class KeepingScreen(PreferenceScreen):
    """Opens sessions and says what goes wrong with them."""

    _desk: SessionDesk | None = None
    _n_asked = 0
    _rewind_armed: Timer | None = None  # of the first of two Esc, while it counts
    _n_calming = 0  # pauses after a stop, in which Esc marks no turn
    _is_saving_again = False

    @property
    def sessions(self) -> SessionDesk | None:
        """What keeps the chat; None: nothing does."""
        return self._desk

    def keep_sessions(self, options: ChatOptions) -> None:
        """Keep this chat, if sessions have a place."""
        if options.sessions is not None:
            heard = DiskReports(
                on_trouble=lambda error: self._post(SessionTrouble(error)),
                on_made=lambda: self._post(SessionMade()),
                on_relief=lambda: self._post(SessionRelief()),
            )
            self._desk = SessionDesk(self.chat, options.sessions, options.settings, heard)

    def kept(self, event: Event) -> bool:
        """Let the session take an event in first; True: it is not for the chat."""
        return self.sessions is not None and self.sessions.report(event)

    def ask_next(self, event: Event) -> None:
        """In a replay, ask the next recorded question when it is time."""
        if not isinstance(event, ModelReady | TurnFinished):
            return
        if self._n_asked < len(self._options.questions):
            self._n_asked += 1
            self.chat.send_text(self._options.questions[self._n_asked - 1])

    def resume_first(self) -> None:
        """Open the session that was named at the start, once the transcript has a width."""
        desk = self.sessions
        if desk is None:
            return
        if not self._is_saving_again:
            self._is_saving_again = True
            self.set_interval(SAVE_AGAIN_S, self._save_again)
        if not desk.plan.resume:
            return
        if self.transcript.size.width:
            self.transcript.call_later(desk.attempt, lambda: _open_first(desk))
        else:
            self.call_after_refresh(self.resume_first)

    def action_sessions(self) -> None:
        """Show saved sessions."""
        if self.sessions is None:
            self.hint("This chat is not kept: the recorded tour saves nothing.")
        else:
            self.app.push_screen(SessionsScreen(self.sessions))

    def action_fork_turn(self) -> None:
        """Go on from the marked turn on a new branch."""
        turn = self._marked()
        if turn is None:
            return
        self.leave_turns()
        if self.sessions is None:
            self.hint("This chat is not kept: there is no branch to fork")
        else:
            sessions_manage.fork(self.sessions, turn.turn_id)

    def escape_idle(self) -> None:
        """Pressed twice while nothing runs: pick a turn to fork from."""
        if self._n_calming:
            return
        if self._rewind_armed is not None:
            self._disarm_rewind()
            self.action_turn(-1)
        else:
            self._rewind_armed = self.set_timer(REWIND_ARMED_S, self._disarm_rewind)

    def hold_rewind(self) -> None:
        """Something was stopped: more Esc just then are meant for that."""
        self._disarm_rewind()
        self._n_calming += 1
        self.set_timer(REWIND_ARMED_S, self._calmed)

    def _calmed(self) -> None:
        self._n_calming -= 1

    def _disarm_rewind(self) -> None:
        timer, self._rewind_armed = self._rewind_armed, None
        if timer is not None:
            timer.stop()  # it would end a later Esc too soon

    def _post(self, message: Message) -> None:
        try:
            self.post_message(message)
        except RuntimeError:
            return  # the loop is closed: the end of the chat sees to the session itself

    def on_session_made(self) -> None:
        """Go on in the session that was made."""
        if self.sessions is not None:
            self.sessions.settle()

    def on_session_relief(self) -> None:
        """Say that saving works again."""
        if self.sessions is not None:
            self.sessions.relieved()

    def _save_again(self) -> None:
        """Try again what a disk refused; it may have room by now."""
        if self.sessions is not None and self.sessions.is_unsaved:
            self.sessions.save_soon()

    def on_session_trouble(self, message: SessionTrouble) -> None:
        """Say that the disk fails."""
        if self.sessions is not None:
            self.sessions.tell(message.error)


def _open_first(desk: SessionDesk) -> None:
    desk.open(desk.plan.resume)
    for note in desk.plan.notes:
        desk.chat.say(note)
