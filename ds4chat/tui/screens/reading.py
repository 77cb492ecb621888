"""Reading the transcript: searching it, going over turns, asking about tokens, copying."""

from __future__ import annotations

from pathlib import Path

from textual import events, on
from textual.screen import Screen

from ds4chat.tui.commands import last_code_block
from ds4chat.tui.controller import ChatController
from ds4chat.tui.files import write_private
from ds4chat.tui.rounds import RejectedTexts, why_no_ghosts
from ds4chat.tui.screens.round import RoundScreen
from ds4chat.tui.state import Turn
from ds4chat.tui.widgets.hint_line import LASTS_S, HintLine
from ds4chat.tui.widgets.keybar import KeyBar
from ds4chat.tui.widgets.prompt import PromptArea
from ds4chat.tui.widgets.search_bar import SearchBar, SearchInput
from ds4chat.tui.widgets.transcript import Transcript
from ds4chat.tui.widgets.transcript_tools import TokenPlace

COPY_FILE = "copied.txt"

_TURN_KEYS = {
    "c": "copy_turn",
    "y": "copy_turn_code",
    "r": "retry_turn",
    "e": "edit_turn",
    "f": "fork_turn",
    "g": "ghosts",
    "enter": "turn_round",
}


class ReadingScreen(Screen[None]):
    """The half of the chat screen that only reads the transcript.

    Attributes:
        chat: The chat.
        transcript: Where replies are shown.
        state_dir: Folder for what is copied; None: no file is written.
    """

    chat: ChatController
    transcript: Transcript
    state_dir: Path | None
    _prompt: PromptArea
    _keybar: KeyBar
    _search: SearchBar
    _hints: HintLine
    _retry_armed: int | None = None

    def hint(self, text: str, seconds: float = LASTS_S) -> None:
        """Say something that need not stay."""
        self._hints.say(text, seconds)

    # Search

    def action_search(self) -> None:
        """Ask what to find, or end the search."""
        if self._search.is_shown and not self._prompt.has_focus:
            self._end_search()
        else:
            self.search("")

    def search(self, text: str) -> None:
        """Find text in the transcript; empty: ask for it."""
        self._search.open(text)
        self._search.show(self.transcript.search(self._search.text))

    @on(SearchInput.Changed)
    def _find(self) -> None:
        if self._search.is_shown:
            self._search.show(self.transcript.search(self._search.text))

    @on(SearchInput.Stepped)
    def _find_next(self, event: SearchInput.Stepped) -> None:
        self._search.show(self.transcript.search_step(event.step))

    @on(SearchInput.Closed)
    def _end_search(self) -> None:
        self._search.close()
        self.transcript.search("")
        self._prompt.focus()

    # Turns

    def action_turn(self, step: int) -> None:
        """Mark the turn before (-1) or after (1); beyond the last, none."""
        ids, marked = self.transcript.turn_ids, self.transcript.marked_turn
        if not ids:
            self.hint("There is no turn yet")
            return
        at = (len(ids) if marked is None else ids.index(marked)) + step
        if at >= len(ids):
            self.leave_turns()
            return
        self._retry_armed = None
        self.transcript.mark_turn(ids[max(0, at)])
        self.transcript.focus()
        self._keybar.show_turn_keys(True)
        self._hints.clear()  # it would hide the keys

    def leave_turns(self) -> bool:
        """Mark no turn and go back to the prompt; False if none was marked."""
        was_marked = self.transcript.marked_turn is not None
        self.transcript.mark_turn(None)
        self._keybar.show_turn_keys(False)
        if was_marked:
            self.transcript.follow()
            self._prompt.focus()
        return was_marked

    def on_key(self, event: events.Key) -> None:
        """On a marked turn, act on it; else type into the prompt wherever the focus is."""
        is_marked = self.transcript.marked_turn is not None and self.transcript.has_focus
        if is_marked and event.key in _TURN_KEYS:
            event.stop()
            getattr(self, f"action_{_TURN_KEYS[event.key]}")()
        elif not self._prompt.has_focus and event.is_printable and event.character is not None:
            event.stop()
            self.leave_turns()
            self._prompt.focus()
            self._prompt.insert(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """A paste goes into the prompt wherever the focus is."""
        if not self._prompt.has_focus:
            event.stop()
            self._prompt.focus()
            self._prompt.post_message(events.Paste(event.text))

    def _marked(self) -> Turn | None:
        marked = self.transcript.marked_turn
        return self.chat.conversation.find(marked) if marked is not None else None

    def action_copy_turn(self) -> None:
        """Copy the answer of the marked turn."""
        turn = self._marked()
        if turn is None or not turn.answer_text:
            self.hint("This turn has no answer")
        else:
            self.copy(turn.answer_text, "The answer")

    def action_copy_turn_code(self) -> None:
        """Copy the last code block of the marked turn."""
        turn = self._marked()
        code = last_code_block(turn.answer_text) if turn is not None else None
        if code is None:
            self.hint("This answer has no code block")
        else:
            self.copy(code, "The code block")

    def action_retry_turn(self) -> None:
        """Answer the marked turn again; asked twice when later turns would go."""
        turn = self._marked()
        if turn is None:
            return
        n_later = self.chat.conversation.n_after(turn.turn_id)
        if n_later and self._retry_armed != turn.turn_id:
            self._retry_armed = turn.turn_id
            self.hint(f"r again: answers anew, and the {n_later} turns after this one go")
            return
        self.leave_turns()
        self.chat.retry(turn.turn_id)

    def action_edit_turn(self) -> None:
        """Put the marked turn's question into the prompt; sending replaces the turn."""
        turn = self._marked()
        if turn is not None:
            self.leave_turns()
            self.chat.edit(turn.turn_id)

    def action_fork_turn(self) -> None:
        """Go on from the marked turn on a new branch; for the screen that keeps sessions."""

    def action_ghosts(self) -> None:
        """Show or hide the rejected drafts of the marked turn, else of the last reply.

        Those of a running reply are shown as they come.
        """
        talk = self.chat.conversation
        turn = self._marked() or talk.active or talk.last_finished
        if turn is None:
            self.hint("There is no reply yet")
            return
        is_shown = self.transcript.has_ghosts(turn.turn_id)
        texts = RejectedTexts(turn.rounds)
        if not texts and not is_shown and turn.reason is not None:
            figures = self.chat.figures
            self.hint(why_no_ghosts(turn.rounds, figures.state, figures.reason))
            return
        self.transcript.set_ghosts(turn.turn_id, None if is_shown else texts)
        if not is_shown:
            self.hint("Rejected drafts are struck through; /ghosts hides them")

    # Tokens

    def action_turn_round(self) -> None:
        """Show the tokens and rounds of the marked turn."""
        turn = self._marked()
        places = self.transcript.token_places(turn.turn_id) if turn is not None else []
        if places:
            self._show_round(places[0])
        else:
            self.hint("This turn has no tokens")

    @on(Transcript.TokenClicked)
    def _token_clicked(self, event: Transcript.TokenClicked) -> None:
        self._show_round(event.place)

    def _show_round(self, place: TokenPlace) -> None:
        turn = self.chat.conversation.find(place.turn_id)
        if turn is not None:
            self.app.push_screen(RoundScreen(self.transcript, turn, place))

    # Copying

    def copy(self, text: str, what: str) -> None:
        """Put text on the clipboard, and into a file for terminals that refuse.

        OSC 52 has no answer: nobody can know whether the terminal took it.
        """
        text = text.encode("utf-8", "replace").decode("utf-8")  # no lone surrogates
        self.app.copy_to_clipboard(text)
        path = self.state_dir / COPY_FILE if self.state_dir is not None else None
        if path is not None and write_private(path, text):
            self.hint(f"{what} was sent to the clipboard, and is in {path}")
        else:
            self.hint(f"{what} was sent to the clipboard")
