"""Source lines of a parsed text, and how block content maps back to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

_CONTAINER = " \t>"


class SourceLines:
    """The lines of a text with their offsets; lines end at line feeds only."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines[:-1])]
        self.n_complete = len(self.lines) - 1

    def is_blank(self, idx: int) -> bool:
        """Whether a line holds nothing but quote marks and white space."""
        return not self.lines[idx].strip(_CONTAINER)

    def column_of(self, idx: int, content: str) -> int:
        """The column where a content line starts in its source line.

        Content lines are what is left after quote marks and indents were removed, so they are
        suffixes; the parser may have trimmed both ends or widened a tab at the start.
        """
        raw = self.lines[idx]
        if raw.endswith(content):
            return len(raw) - len(content)
        body = content.strip()
        found = raw.rfind(body)
        return max(0, found - (len(content) - len(content.lstrip())))


class ContentMap:
    """Maps offsets in the content of a block to offsets in the source."""

    def __init__(self, lines: SourceLines, first_line: int, content: str) -> None:
        self._starts: list[int] = []
        self._sources: list[int] = []
        at = 0
        for idx, line in enumerate(content.split("\n"), first_line):
            self._starts.append(at)
            self._sources.append(lines.starts[idx] + lines.column_of(idx, line))
            at += len(line) + 1

    def source(self, offset: int) -> int:
        """The source offset of a content offset; a line feed maps behind its line."""
        idx = bisect_right(self._starts, offset) - 1
        return self._sources[idx] + offset - self._starts[idx]


class Places(Protocol):
    """Maps offsets in content to offsets in the parsed text."""

    def source(self, offset: int) -> int:
        """The source offset of a content offset."""
        ...


class OffsetMap:
    """Maps content that is one stretch with given columns (a table cell)."""

    def __init__(self, sources: Sequence[int]) -> None:
        self._sources = sources

    def source(self, offset: int) -> int:
        """The source offset of a content offset."""
        return self._sources[offset]


class ShiftedMap:
    """A map whose offsets start later in the content."""

    def __init__(self, places: Places, shift: int) -> None:
        self._places = places
        self._shift = shift

    def source(self, offset: int) -> int:
        """The source offset of a content offset."""
        return self._places.source(offset + self._shift)
