"""What a slash command in the prompt could become: a list that Up and Down walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from ds4chat.tui.command_host import Offer

MAX_SHOWN = 6


def window(n: int, mark: int | None, height: int) -> tuple[range, bool]:
    """Which of `n` rows are shown in so many lines, and whether a line tells of the others."""
    if n <= height:
        return range(n), False
    tells = height >= MAX_SHOWN // 2
    room = height - tells
    first = max(0, min((mark or 0) - room // 2, n - room))
    return range(first, first + room), tells


class CompletionList(Widget):
    """A short list above the prompt; hidden when there is nothing to offer.

    It follows the prompt by messages. The prompt's own questions name the text as it is now, so
    that keys that come faster than the screen is drawn are taken in their order.

    Args:
        complete: what could follow a text, best first.
    """

    DEFAULT_CSS = """
    CompletionList {
        width: 1fr; height: auto; background: $panel; color: $foreground; display: none;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    CompletionList.-shown { display: block; }
    """

    def __init__(self, complete: Callable[[str], list[Offer]]) -> None:
        super().__init__(id="completion")
        self._complete = complete
        self._typed = ""
        self._offers: list[Offer] = []
        self._mark: int | None = None
        self._is_placed = False  # since it is shown, so that its place is known

    def offer(self, typed: str) -> None:
        """Show what could follow a text; nothing is marked in a new one."""
        if typed == self._typed:
            return
        self._typed = typed
        self._show(self._complete(typed))

    def close(self) -> bool:
        """Offer nothing until the text changes; False if nothing was offered."""
        was_shown = bool(self._offers)
        self._show([])
        return was_shown

    def walk(self, typed: str, step: int) -> bool:
        """Mark the row below (1) or above (-1), round the ends; False: there is no list."""
        self.offer(typed)
        if not self._can_walk():
            return False
        last = len(self._offers) - 1
        if self._mark is None:
            self._mark = 0 if step > 0 else last
        else:
            self._mark = (self._mark + step) % (last + 1)
        self.refresh()
        return True

    def marked(self, typed: str) -> Offer | None:
        """The marked row of the list for this text; None if none is marked."""
        self.offer(typed)
        if self._mark is None or not self._can_walk():
            return None
        return self._offers[self._mark]

    def choice(self, typed: str) -> str | None:
        """What Tab makes of a text: the marked row, the common beginning, the first offer."""
        if (marked := self.marked(typed)) is not None:
            return marked.text
        texts = [offer.text for offer in self._complete(typed)]
        if not texts:
            return None
        columns = zip(*texts, strict=False)
        same = takewhile(lambda column: len(set(column)) == 1, columns)
        common = "".join(column[0] for column in same)
        return common if len(common) > len(typed) else texts[0]

    def _can_walk(self) -> bool:
        """Whether a list is seen that has more than what is typed."""
        is_seen = not self._is_placed or self.region.height > 0
        typed = self._typed.rstrip()
        return is_seen and any(offer.text.rstrip() != typed for offer in self._offers)

    def _show(self, offers: Sequence[Offer]) -> None:
        if (list(offers), self._mark) == (self._offers, None):
            if offers:
                self.refresh()  # its keys; a layout at every key would take the whole screen
            return
        if offers and not self._offers and self.is_mounted:
            self._is_placed = False
            self.call_after_refresh(self._placed)
        self._offers, self._mark = list(offers), None
        self.set_class(bool(offers), "-shown")
        self.refresh(layout=True)

    def _placed(self) -> None:
        self._is_placed = True

    def get_content_height(self, _container: Size, _viewport: Size, _width: int) -> int:
        """One line an offer, and one for those that are not shown."""
        return min(len(self._offers), MAX_SHOWN + 1)

    def render(self) -> Content:
        """The rows round the marked one."""
        shown, tells = window(len(self._offers), self._mark, self.size.height)
        lines = [self._line(place) for place in shown]
        if tells:
            n = len(self._offers)
            words = f"{self._mark + 1} of {n}" if self._mark is not None else ""
            words = words or f"and {n - len(shown)} more"
            lines.append(Content.styled(f"  {words}", "$secondary"))
        return Content("\n").join(lines)

    def _line(self, place: int) -> Content:
        explanation = self._offers[place].shown
        if place == self._mark:
            row = (explanation, "reverse")
            return Content.assemble(("> ", "bold $primary"), row, ("   Enter", "bold $primary"))
        keys = "   Tab · Up, Down" if place == 0 and self._mark is None else ""
        shown = keys if self._can_walk() else ""
        return Content.assemble("  ", explanation, (shown, "bold $primary"))
