"""Help: every word on the screen defined once, then keys and commands."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4chat.tui.commands import COMMANDS
from ds4chat.tui.keys import PROMPT_KEYS, SCREEN_KEYS

WORDS = (
    ("plain", "one pass of the target, the full model, for each token"),
    (
        "speculative",
        "DSpark drafts a block of tokens and the target checks all of them in one pass; what "
        "the target would not have said is thrown away, so the text is the same",
    ),
    ("round", "one draft, one check, and the tokens that stay"),
    ("accepted", "drafted, and the target agreed"),
    ("fallback", "the target's own token where the draft was wrong"),
    ("bonus", "the target's extra token after a block that was right throughout"),
    ("forced", "put there by the program, such as the end of reasoning; in no rate"),
    ("accept length", "tokens a round brings on average: accepted + 1; plain steps excluded"),
    (
        "accepted / tested",
        "tested are the drafts that were put before the target: 3 of 5 is 60 %",
    ),
    (
        "by position i",
        "how often draft i was right, of the rounds in which all before it were right",
    ),
    ("confidence", "the drafter's own estimate that a draft is right, 0 to 1"),
    ("parked", "speculation pauses because it loses, and is tried again later"),
    (
        "saved",
        "time that plain decoding would have taken, at the best plain step measured in this "
        "run, minus the time it took",
    ),
    ("greedy", "temperature 0: always the likeliest token"),
)

MARKS = (
    "Sources differ in colour and in type: accepted is as it is, fallback underlined, bonus "
    "bold, plain italic, forced reversed. In the panel a block reads [#] accepted, [x] wrong, "
    "[ ] behind the wrong one, [-] not drafted."
)

NOTES = (
    "A paste of many lines stays one draft where the terminal marks pastes (bracketed paste). "
    "Where it does not, each line end counts as Enter: use /read FILE there. Shift+Enter needs "
    "a terminal that reports it; Ctrl+J works everywhere. Text that begins with a slash and a "
    "word is a command; a space before it makes it a message."
)


class HelpScreen(ModalScreen[None]):
    """Closes with Esc, F1 or q."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,alt+1,q", "dismiss", "Close", show=False),
    ]

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with VerticalScroll(id="help-box"):
            yield Static(help_text(), id="help-text", markup=False)

    def on_mount(self) -> None:
        """Let the keys scroll it."""
        self.query_one("#help-box").focus()


def help_text() -> Content:
    """The whole help."""
    parts: list[Content] = [_heading("Help (Esc closes, PageDown scrolls)"), Content("")]
    parts += [_heading("Words")]
    parts += [_entry(word, meaning, 18) for word, meaning in WORDS]
    parts += [Content(""), Content(MARKS), Content(""), _heading("Keys")]
    parts += [_entry(row.shown, row.summary, 18) for row in SCREEN_KEYS]
    parts += [_entry(keys, meaning, 18) for keys, meaning in PROMPT_KEYS]
    parts += [Content(""), Content(NOTES), Content(""), _heading("Commands")]
    parts += [_entry(command.usage, command.summary, 24) for command in COMMANDS.values()]
    return Content("\n").join(parts)


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $primary")


def _entry(name: str, meaning: str, width: int) -> Content:
    return Content.assemble((f"{name:<{width}}", "bold"), " ", meaning)
