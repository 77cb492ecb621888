"""What a slash command in the prompt could become."""

from __future__ import annotations

from itertools import takewhile

from textual.content import Content
from textual.widgets import Static

MAX_SHOWN = 6


class CompletionList(Static):
    """A short list above the prompt; hidden when there is nothing to offer."""

    DEFAULT_CSS = """
    CompletionList {
        height: auto; padding: 0 1; background: $panel; color: $foreground; display: none;
    }
    CompletionList.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(id="completion", markup=False)
        self._offers: list[tuple[str, str]] = []

    def show(self, offers: list[tuple[str, str]]) -> None:
        """Show (text, explanation) pairs."""
        if offers == self._offers:
            return  # an update would lay out the whole screen at every key
        self._offers = offers
        self.set_class(bool(offers), "-shown")
        lines = [Content(explanation) for _, explanation in offers[:MAX_SHOWN]]
        if len(offers) > MAX_SHOWN:
            lines.append(Content.styled(f"and {len(offers) - MAX_SHOWN} more", "$secondary"))
        if lines:
            lines[0] = Content.assemble(lines[0], ("   Tab", "bold $primary"))
        self.update(Content("\n").join(lines))

    def choice(self, typed: str) -> str | None:
        """What Tab makes of the typed text: the common beginning, else the first offer."""
        if not self._offers:
            return None
        texts = [text for text, _ in self._offers]
        columns = zip(*texts, strict=False)
        same = takewhile(lambda column: len(set(column)) == 1, columns)
        common = "".join(column[0] for column in same)
        return common if len(common) > len(typed) else texts[0]
