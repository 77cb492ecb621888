"""Keys: one table for the bindings, the bottom line and the help screen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One action of the chat screen.

    Attributes:
        keys: Textual key names, the first is shown.
        action: what Textual runs.
        shown: how the key is written for a person.
        label: word or two for the bottom line; empty keeps it out of there.
        summary: for the help screen.
        is_priority: works wherever the focus is.
    """

    keys: str
    action: str
    shown: str
    summary: str
    label: str = ""
    is_priority: bool = True

    @property
    def name(self) -> str:
        """What the settings file calls the action."""
        return _NAMES.get(self.action, self.action.replace("_", "-"))


_NAMES = {"turn(-1)": "turn-before", "turn(1)": "turn-after"}


SCREEN_KEYS = (
    KeyRow(keys="f1,alt+1", action="help", shown="F1", label="help", summary="this help"),
    KeyRow(
        keys="f2,alt+2",
        action="settings",
        shown="F2",
        label="settings",
        summary="all settings; a change during a reply holds from the next",
    ),
    KeyRow(
        keys="f3,alt+3",
        action="toggle_spec",
        shown="F3",
        label="spec",
        summary="speculation on or off, from the next block",
    ),
    KeyRow(
        keys="f4,alt+4",
        action="cycle_colours",
        shown="F4",
        label="colours",
        summary="what the colours mean: off, source, position, confidence",
    ),
    KeyRow(
        keys="f5,alt+5",
        action="race",
        shown="F5",
        label="race",
        summary="race the last prompt: plain against speculative",
    ),
    KeyRow(
        keys="f6,alt+6",
        action="toggle_panel",
        shown="F6",
        label="panel",
        summary="show or hide the speculation panel (from 100 columns on)",
    ),
    KeyRow(
        keys="f8",
        action="restart",
        shown="F8",
        summary="start a dead engine again",
    ),
    KeyRow(
        keys="ctrl+t",
        action="think",
        shown="^T",
        label="think",
        summary="thinking off, high, max; while the model reasons: answer now",
    ),
    KeyRow(
        keys="ctrl+o",
        action="toggle_fold",
        shown="^O",
        label="fold",
        summary="fold or unfold reasoning",
    ),
    KeyRow(keys="ctrl+n", action="new_chat", shown="^N", label="new", summary="a new chat"),
    KeyRow(
        keys="ctrl+p",
        action="palette",
        shown="^P",
        label="palette",
        summary="find a command by its name",
    ),
    KeyRow(
        keys="ctrl+r",
        action="sessions",
        shown="^R",
        summary="saved sessions: open, rename, delete",
    ),
    KeyRow(
        keys="ctrl+f",
        action="search",
        shown="^F",
        label="find",
        summary="find text in the transcript",
    ),
    KeyRow(
        keys="alt+up",
        action="turn(-1)",
        shown="Alt+Up",
        summary="mark the turn before: copy, edit, retry, ghosts, tokens",
    ),
    KeyRow(
        keys="alt+down",
        action="turn(1)",
        shown="Alt+Down",
        summary="mark the turn after; behind the last one: back to the prompt",
    ),
    KeyRow(
        keys="ctrl+g",
        action="edit_prompt",
        shown="^G",
        summary="edit the prompt in your editor (VISUAL or EDITOR)",
    ),
    KeyRow(
        keys="alt+u",
        action="empty_prompt",
        shown="Alt+U",
        summary="empty the prompt; Up brings the text back",
    ),
    KeyRow(
        keys="escape",
        action="stop",
        shown="Esc",
        summary="stop the reply, keep its text; else take back what waits",
        is_priority=False,
    ),
    KeyRow(
        keys="ctrl+c",
        action="interrupt",
        shown="^C",
        summary="copy what is selected; else stop the reply; else press again to quit",
    ),
    KeyRow(
        keys="ctrl+shift+c",
        action="copy_answer",
        shown="^Shift+C",
        summary="copy the last answer",
    ),
    KeyRow(keys="alt+y", action="copy_code", shown="Alt+Y", summary="copy the last code block"),
    KeyRow(
        keys="ctrl+z",
        action="suspend",
        shown="^Z",
        summary="back to the shell; fg brings the chat back, a reply is not lost",
    ),
    KeyRow(keys="ctrl+q", action="quit", shown="^Q", label="quit", summary="quit"),
)

PROMPT_KEYS = (
    ("Enter", "send; while a reply runs the message waits its turn"),
    ("Shift+Enter, ^J, Alt+Enter", "new line"),
    ("Tab", "complete a slash command"),
    (
        "In the list after /",
        "Up, Down mark a command, Enter takes it, Tab puts it into the prompt, Esc closes",
    ),
    ("Up, Down", "earlier messages (that begin as what is typed); a waiting one first"),
    ("^_ (also ^/), ^Y", "undo and redo in the prompt"),
    ("PageUp, PageDown", "scroll the transcript"),
    (
        "On a marked turn",
        "Enter tokens, c copy, y copy code, e edit, r retry, f fork, g ghosts",
    ),
    ("In a race", "Space pause, R again, P replay, S save card, W save report"),
    ("Click on a token", "its round: drafts, confidences, outcome, times"),
    ("^D in an empty prompt", "quit"),
    ("Esc Esc, idle", "mark the last turn; f (fork) goes on from it on a new branch"),
    ("Alt+1 to Alt+6", "the same as F1 to F6"),
)
