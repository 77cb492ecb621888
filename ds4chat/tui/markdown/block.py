"""A displayed block: its text, where each character came from, which token completed it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from ds4chat.store.graphemes import graphemes
from ds4chat.tui.markdown.clean import clean_joiners
from ds4chat.tui.markdown.lines import Places

NO_TOKEN = -1


class Look:
    """Bits: what Markdown says about a character (plain integers: they are hot)."""

    PLAIN = 0
    BOLD = 1
    ITALIC = 2
    STRIKE = 4
    CODE = 8
    LINK = 16
    HEADING = 32
    MARKER = 64
    GHOST = 128  # a rejected draft; no part of the reply


class BlockKind(IntEnum):
    """How a block is laid out."""

    TEXT = 0  # wrapped at words
    CODE = 1  # lines cut at the width
    TABLE = 2
    RULE = 3


class Run(NamedTuple):
    """A stretch of display text and the source it shows.

    Identity: character `display + i` shows source character `source + i`. Point: all characters
    show the one source character at `source` (an entity, a bullet, an expanded tab).
    """

    display: int
    length: int
    source: int
    is_identity: bool
    look: int


class Piece(NamedTuple):
    """A stretch of display text with one token and one look."""

    start: int
    end: int
    token: int
    look: int


class Cell(NamedTuple):
    """A table cell: its display offsets."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells, the header first; `aligns`: "left", "center" or "right" per column."""

    rows: tuple[tuple[Cell, ...], ...]
    aligns: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Block:
    """A block ready for layout.

    Attributes:
        kind: How it is laid out.
        text: Display text; line feeds separate lines that must not be joined.
        runs: Where each display character came from, in order, without gaps.
        prefix: Drawn before the first line (quote bars, indents; no model text).
        cont: Drawn before the other lines; as wide as `prefix` plus the list markers in `text`.
        gap: Whether an empty line stands above; `gap_prefix` is drawn on it.
        table: For `BlockKind.TABLE`.
        language: What a fence says its code is; empty: nothing.
        code_at: Display offset at which the code starts, behind the label.
        starts, tokens, looks: Pieces: display start, token index (or `NO_TOKEN`), look.
    """

    kind: BlockKind
    text: str
    runs: tuple[Run, ...]
    prefix: str = ""
    cont: str = ""
    gap: bool = False
    gap_prefix: str = ""
    table: Table | None = None
    language: str = ""
    code_at: int = 0
    starts: array[int] = field(default_factory=lambda: array("l"))
    tokens: array[int] = field(default_factory=lambda: array("l"))
    looks: bytearray = field(default_factory=bytearray)

    def assign(self, ends: Sequence[int]) -> None:
        """Give each display character the token that completed it.

        Args:
            ends: Per token, the source length after it; never decreasing.
        """
        pieces = _pieces(self.runs, ends)
        if not self.text.isascii():
            pieces = _whole_graphemes(self.text, pieces)
        self.starts, self.tokens, self.looks = array("l"), array("l"), bytearray()
        previous = (NO_TOKEN - 1, 0)
        for piece in pieces:
            if (piece.token, piece.look) != previous:
                previous = (piece.token, piece.look)
                self.starts.append(piece.start)
                self.tokens.append(piece.token)
                self.looks.append(piece.look)

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        """The pieces of a slice of the display text."""
        idx = bisect_right(self.starts, start) - 1
        while start < end:
            following = self.starts[idx + 1] if idx + 1 < len(self.starts) else end
            stop = min(end, following)
            yield Piece(start, stop, self.tokens[idx], self.looks[idx])
            start, idx = stop, idx + 1

    def source_at(self, offset: int) -> int:
        """The source offset that the display character at `offset` shows."""
        idx = bisect_right(self.runs, offset, key=lambda run: run.display) - 1
        run = self.runs[max(0, idx)]
        return run.source + (offset - run.display if run.is_identity else 0)

    def display_of(self, source: int) -> int:
        """The first display offset that shows the source from an offset on; else the end."""
        for run in self.runs:
            if run.look & Look.GHOST or run.source < 0:
                continue
            if source <= run.source:
                return run.display
            if run.is_identity and source < run.source + run.length:
                return run.display + source - run.source
        return len(self.text)

    def same_picture(self, other: Block) -> bool:
        """Whether both draw the same characters with the same tokens and looks."""
        return self.picture() == other.picture()

    def structure(self) -> tuple[object, ...]:
        """All that the parser decides."""
        return (
            self.kind, self.text, self.runs, self.prefix, self.cont, self.gap, self.gap_prefix,
            self.table, self.language,
        )  # fmt: skip

    def picture(self) -> tuple[object, ...]:
        """All that decides what is drawn, for comparing."""
        return (
            self.kind, self.text, self.prefix, self.cont, self.gap, self.gap_prefix,
            self.table, self.starts, self.tokens, self.looks,
        )  # fmt: skip


def _pieces(runs: Sequence[Run], ends: Sequence[int]) -> list[Piece]:
    """Cut the runs where the token changes."""
    pieces = []
    for run in runs:
        if run.source < 0:
            token = NO_TOKEN
            pieces.append(Piece(run.display, run.display + run.length, token, run.look))
            continue
        token = bisect_right(ends, run.source)
        if not run.is_identity:
            pieces.append(Piece(run.display, run.display + run.length, token, run.look))
            continue
        at, stop = run.source, run.source + run.length
        shift = run.display - run.source
        while at < stop:
            last = token >= len(ends) or ends[token] >= stop
            end = stop if last else ends[token]
            if end > at:
                pieces.append(Piece(at + shift, end + shift, token, run.look))
            at, token = end, token + 1
    if ends:
        return pieces
    return [piece._replace(token=NO_TOKEN) for piece in pieces]


def _whole_graphemes(text: str, pieces: Sequence[Piece]) -> list[Piece]:
    """Let no piece border fall inside a grapheme: its last code point decides."""
    tokens = [NO_TOKEN] * len(text)
    looks = [0] * len(text)
    for start, end, token, look in pieces:
        tokens[start:end] = [token] * (end - start)
        looks[start:end] = [look] * (end - start)
    at = 0
    for line in text.split("\n"):
        if not line.isascii():
            for start, end, _ in graphemes(line):
                if end - start > 1:
                    tokens[at + start : at + end] = [tokens[at + end - 1]] * (end - start)
                    looks[at + start : at + end] = [looks[at + end - 1]] * (end - start)
        at += len(line) + 1
    borders = [
        i for i in range(1, len(text)) if (tokens[i], looks[i]) != (tokens[i - 1], looks[i - 1])
    ]
    edges = [0, *borders, len(text)] if text else []
    return [Piece(a, b, tokens[a], looks[a]) for a, b in pairwise(edges)]


class Canvas:
    """Collects display text together with its runs."""

    def __init__(self, source: str, base: int = 0) -> None:
        """Start empty.

        Args:
            source: The text that is parsed.
            base: Added to offsets in `source` to get offsets in the whole reply.
        """
        self.source = source
        self.base = base
        self.length = 0
        self._parts: list[str] = []
        self._runs: list[Run] = []

    def add(self, text: str, at: int, n: int, look: int = 0) -> None:
        """Add display text for `n` source characters from `at`.

        When both are equal the run is an identity; otherwise everything points at the last
        source character.
        """
        if not text:
            return
        if "\t" in text:
            self._add_tabs(text, at, n, look)
            return
        if not text.isascii():
            text = clean_joiners(text, self._parts[-1][-1] if self._parts else "")
        is_identity = len(text) == n and text == self.source[at : at + n]
        source = self.base + (at if is_identity else at + max(n, 1) - 1)
        self._push(text, Run(self.length, len(text), source, is_identity, look))

    def add_mapped(self, text: str, at: int, n: int, places: Places, look: int) -> None:
        """Add display text for `n` characters of content; they may lie apart in the source."""
        first, last = places.source(at), places.source(at + n - 1)
        if len(text) != n:
            self.add(text, last, 1, look)
        elif last - first == n - 1:
            self.add(text, first, n, look)
        else:
            for index, char in enumerate(text):
                self.add(char, places.source(at + index), 1, look)

    def add_drawn(self, text: str) -> None:
        """Add text that the program draws and that belongs to no token."""
        if text:
            self._push(text, Run(self.length, len(text), -1, False, Look.MARKER))

    def _add_tabs(self, text: str, at: int, n: int, look: int) -> None:
        """Add text in which every tab is drawn as a space."""
        if len(text) != n:
            self.add(text.replace("\t", " "), at, n, look)
            return
        for index, part in enumerate(text.split("\t")):
            if index:
                self.add(" ", at - 1, 1, look)
            self.add(part, at, len(part), look)
            at += len(part) + 1

    def add_tabbed(self, line: str, at: int, look: int = 0) -> None:
        """Add a line, with tabs widened to the next multiple of four columns."""
        column = 0
        for index, part in enumerate(line.split("\t")):
            if index:
                width = 4 - column % 4
                self.add(" " * width, at - 1, 1, look)
                column += width
            self.add(part, at, len(part), look)
            column += len(part)
            at += len(part) + 1

    def _push(self, text: str, run: Run) -> None:
        self._parts.append(text)
        self._runs.append(run)
        self.length += len(text)

    @property
    def text(self) -> str:
        """The display text so far."""
        return "".join(self._parts)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs so far."""
        return tuple(self._runs)
