"""Help: every word on the screen defined once, then keys and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4chat.tui.commands import COMMANDS
from ds4chat.tui.keys import PROMPT_KEYS, KeyRow

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
    ("ghost", "a rejected draft: never part of the text; /ghosts shows them struck through"),
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

OWN_KEYS = (
    'Your own keys stand in the settings file, such as: [keys] toggle-spec = "f9, ctrl+k". '
    "The names: "
)


class HelpScreen(ModalScreen[None]):
    """Closes with Esc, F1 or q."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,alt+1,q", "dismiss", "Close", show=False),
    ]

    def __init__(self, key_rows: Sequence[KeyRow], *, at_keys: bool = False) -> None:
        super().__init__()
        self._key_rows = key_rows
        self._at_keys = at_keys

    def compose(self) -> ComposeResult:
        """One scrolling column."""
        with VerticalScroll(id="help-box"):
            yield _heading("Help (Esc closes, PageDown scrolls)")
            yield _heading("Words")
            yield Static(table(WORDS), id="help-words")
            yield Static(MARKS, markup=False)
            yield _heading("Keys")
            rows = [(row.shown, row.summary) for row in self._key_rows]
            yield Static(table([*rows, *PROMPT_KEYS]), id="help-keys")
            yield Static(
                f"{OWN_KEYS}{', '.join(row.name for row in self._key_rows)}.", markup=False
            )
            yield Static(NOTES, markup=False)
            yield _heading("Commands")
            commands = [(command.usage, command.summary) for command in COMMANDS.values()]
            yield Static(table(commands), id="help-commands")

    def on_mount(self) -> None:
        """Let the keys scroll it."""
        self.query_one("#help-box").focus()
        if self._at_keys:
            keys = self.query_one("#help-keys")
            self.call_after_refresh(keys.scroll_visible, animate=False, top=True)


def table(rows: Sequence[tuple[str, str]]) -> Table:
    """Names in one column, meanings wrapped in the other."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=20, no_wrap=True, style="bold")
    grid.add_column(ratio=1)
    for name, meaning in rows:
        grid.add_row(Text(name), Text(meaning))
    return grid


def _heading(text: str) -> Static:
    return Static(text, classes="help-heading", markup=False)
