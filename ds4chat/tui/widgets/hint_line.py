"""Something that need not stay, in place of the screen's line of keys.

No text is covered and nothing moves; a hint that is wider than the screen takes more lines. The
screen has the class `-hinting` meanwhile, by which its style sheet hides the line of keys.
"""

from __future__ import annotations

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from ds4chat.tui.markdown.clean import clean_line

LASTS_S = 3.0


class HintLine(Static):
    """Shows the last hint for a while."""

    DEFAULT_CSS = """
    HintLine { height: auto; max-height: 4; padding: 0 1; color: $primary; display: none; }
    HintLine.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._end: Timer | None = None

    def say(self, text: str, seconds: float = LASTS_S) -> None:
        """Show a text, in place of the one before."""
        if not self.is_mounted:
            return
        self.update(Content(clean_line(text)))
        self.set_class(True, "-shown")
        self.screen.set_class(True, "-hinting")
        if self._end is not None:
            self._end.stop()
        self._end = self.set_timer(seconds, self.clear)

    def clear(self) -> None:
        """Show nothing."""
        self.set_class(False, "-shown")
        self.screen.set_class(False, "-hinting")
