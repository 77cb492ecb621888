"""Quotes and list items around a block: what they draw, and where their marks stand."""

from __future__ import annotations

from dataclasses import dataclass

from ds4chat.tui.markdown.block import Canvas, Look
from ds4chat.tui.markdown.lines import SourceLines

BAR = "┃ "
BULLET = "•"


@dataclass(slots=True, kw_only=True)
class _Container:
    """A quote or list item.

    Attributes:
        cont: Drawn before every line but the first.
        marker: Drawn once, before the first block; it shows `n` characters at offset `at`.
        is_shown: Whether the marker was drawn.
        has_blocks: Whether a block was built inside.
    """

    cont: str
    marker: str
    at: int
    n: int
    is_shown: bool
    has_blocks: bool = False


class Containers:
    """The containers around the block that is being built, outermost first."""

    def __init__(self, lines: SourceLines, base: int) -> None:
        """No containers.

        Args:
            lines: The parsed text.
            base: Its offset in the reply.
        """
        self._lines = lines
        self._base = base
        self._stack: list[_Container] = []
        self._cursor = 0
        self.line = -1  # of the last mark; the cursor stands behind it

    def open_quote(self, line: int, *, has_blocks: bool) -> None:
        """Enter a quote that starts on a line."""
        at = self.find(line, ">")
        self._stack.append(
            _Container(
                cont=BAR,
                marker=BAR,
                at=at,
                n=1,
                is_shown=not self.has_hidden,  # behind a bullet the bar is part of the text
                has_blocks=has_blocks,
            )
        )

    def open_item(self, line: int, number: str, mark: str) -> None:
        """Enter a list item: `number` is empty for bullets, `mark` the character behind it."""
        written = number + mark
        shown = (written if number else BULLET) + " "
        at = self.find(line, written)
        self._stack.append(
            _Container(
                cont=" " * len(shown), marker=shown, at=at, n=len(written), is_shown=False
            )
        )

    def close(self) -> None:
        """Leave the innermost container."""
        self._stack.pop()

    def column(self, line: int) -> int:
        """The column behind the marks already found on a line."""
        return self._cursor if self.line == line else 0

    def find(self, line: int, mark: str) -> int:
        """The offset of a mark, behind those already found on its line."""
        column = self.column(line)
        found = self._lines.lines[line].find(mark, column)
        found = column if found < 0 else found
        self.line, self._cursor = line, found + len(mark)
        return self._lines.starts[line] + found

    def start(self) -> tuple[Canvas, str]:
        """A canvas that begins with the markers not drawn yet, and the prefix before them."""
        canvas = Canvas(self._lines.source, self._base)
        prefix = "".join(c.cont for c in self._stack if c.is_shown)
        for container in self._stack:
            if not container.is_shown:
                container.is_shown = True
                canvas.add(container.marker[:-1], container.at, container.n, Look.MARKER)
                canvas.add_drawn(" ")
        return canvas, prefix

    def note_block(self) -> None:
        """A block was built inside all of them."""
        for container in self._stack:
            container.has_blocks = True

    @property
    def has_hidden(self) -> bool:
        """Whether a marker was not drawn yet."""
        return any(not c.is_shown for c in self._stack)

    @property
    def has_blocks(self) -> bool:
        """Whether the outermost container has a block."""
        return self._stack[0].has_blocks

    @property
    def cont(self) -> str:
        """Drawn before all lines of a block but the first."""
        return "".join(c.cont for c in self._stack)

    @property
    def gap_prefix(self) -> str:
        """Drawn on an empty line between blocks."""
        return "".join(c.cont for c in self._stack if c.has_blocks).rstrip()

    @property
    def indents(self) -> str:
        """Characters that may stand before the content of a line."""
        return " \t>" if any(c.cont == BAR for c in self._stack) else " \t"
