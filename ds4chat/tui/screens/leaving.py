"""The part of the chat screen that ends: nothing is lost without a word."""

from __future__ import annotations

from textual import on
from textual.timer import Timer
from textual.widgets import TextArea

from ds4chat.tui import sessions_rescue
from ds4chat.tui.screens.keeping import KeepingScreen

QUIT_ARMED_S = 3.0  # how long the first Ctrl+C counts
ASKED_S = 10.0  # how long the question is shown; it counts until something is typed


class LeavingScreen(KeepingScreen):
    """Asks once before something is lost, and keeps the draft for next time."""

    _quit_armed: Timer | None = None  # of the first Ctrl+C, while it counts
    _is_loss_told = False

    def may_leave(self) -> bool:
        """Whether nothing would be lost, or the person heard of it and asks again."""
        losses = self._losses()
        if not losses or self._is_loss_told:
            return True
        self._is_loss_told = True
        self._disarm_quit()
        for loss in losses:
            self.chat.say(loss, "warning")
        self.hint("Nothing was left yet. Quit once more to leave", ASKED_S)
        return False

    def _losses(self) -> list[str]:
        """What leaving would cost, a sentence or two each."""
        desk = self.sessions
        unsaved = sessions_rescue.may_lose(desk) if desk is not None and desk.is_unsaved else ""
        return [words for words in (unsaved, self._draft()) if words]

    def _draft(self) -> str:
        """Keep the draft for next time; says what happens to one that cannot be kept."""
        draft = self._prompt.text
        if not draft.strip() or self._prompt.remember():
            return ""
        return (
            f"The draft in the prompt ({len(draft):,} characters) cannot be kept for next "
            "time: send it, or copy it, or it goes."
        )

    @on(TextArea.Changed)
    def _is_not_leaving(self) -> None:
        self._is_loss_told = False

    def action_quit(self) -> None:
        """Leave; the app asks and closes the engine."""
        self.run_worker(self.app.action_quit(), group="quit", exclusive=True)

    def action_interrupt(self) -> None:
        """Copy what is selected, else stop, else quit when pressed twice."""
        selected = self._prompt.selected_text or self.get_selected_text()
        if selected:
            self.copy(selected, "The selection")
        elif self.chat.stop():
            self.hold_rewind()
        elif self._quit_armed is not None or self._is_loss_told:
            self.action_quit()
        else:
            self._quit_armed = self.set_timer(QUIT_ARMED_S, self._disarm_quit)
            self.hint("Press Ctrl+C again to quit")

    def _disarm_quit(self) -> None:
        timer, self._quit_armed = self._quit_armed, None
        if timer is not None:
            timer.stop()  # it would end a later Ctrl+C too soon

    def action_empty_prompt(self) -> None:
        """Empty the prompt; what was there can be brought back."""
        if self._prompt.text:
            self._prompt.empty()
            self.hint("The prompt is empty; Up or Ctrl+_ brings the text back")
