"""Rejected drafts in the text: struck through, before the token that came instead."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from rich.cells import split_graphemes

from ds4chat.tui.markdown.block import Block, BlockKind, Look, Run
from ds4chat.tui.markdown.clean import clean_line

FEED = "↵"  # a line feed in a ghost
TABLE_LABEL = "wrong drafts in the table: "


class Rounds(Protocol):
    """What a token log knows of rounds: the round and the end of each token."""

    @property
    def rounds(self) -> Sequence[int]:
        """The round of each token."""

    @property
    def ends(self) -> Sequence[int]:
        """The source length after each token."""


class Ghost(NamedTuple):
    """Rejected text and the source offset before which it is shown."""

    at: int
    text: str


def ghosts_of(log: Rounds, rejected: Mapping[int, str]) -> list[Ghost]:
    """Where the rejected drafts of each round belong: behind the round's last token.

    Args:
        log: The tokens of one channel.
        rejected: Joined text of the rejected drafts, by round.
    """
    last = {number: end for number, end in zip(log.rounds, log.ends, strict=True) if number}
    return sorted(
        Ghost(last[number], clean_line(text.replace("\n", FEED)))
        for number, text in rejected.items()
        if text and number in last
    )


def with_ghosts(
    blocks: Sequence[Block], ghosts: Iterable[Ghost], ends: Sequence[int]
) -> list[Block]:
    """The blocks with the ghosts in them; blocks without any stay the same objects.

    A table keeps its columns: its ghosts are listed in a block below it.
    """
    waiting = deque(ghosts)
    found: list[Block] = []
    for index, block in enumerate(blocks):
        is_last = index == len(blocks) - 1
        own: list[Ghost] = []
        while waiting and (is_last or waiting[0].at <= _last_source(block)):
            own.append(waiting.popleft())
        if not own:
            found.append(block)
        elif block.kind is BlockKind.TABLE:
            found += [block, _listed(block, own, ends)]
        else:
            found.append(_inserted(block, own, ends))
    return found


def _last_source(block: Block) -> int:
    """The last source offset that a block shows, -1 for none."""
    return max((_last(run) for run in block.runs), default=-1)


def _last(run: Run) -> int:
    return run.source + (run.length - 1 if run.is_identity else 0)


class _Builder:
    """Display text that grows, with its runs."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.runs: list[Run] = []
        self._length = 0

    def add(self, text: str, source: int, is_identity: bool, look: int) -> None:
        if text:
            self.runs.append(Run(self._length, len(text), source, is_identity, look))
            self.parts.append(text)
            self._length += len(text)

    def add_ghost(self, ghost: Ghost) -> None:
        self.add(ghost.text, ghost.at, False, Look.GHOST)

    def block(self, old: Block, ends: Sequence[int]) -> Block:
        new = replace(old, text="".join(self.parts), runs=tuple(self.runs))
        new.assign(ends)
        return new


def _inserted(block: Block, ghosts: Sequence[Ghost], ends: Sequence[int]) -> Block:
    builder = _Builder()
    waiting = deque(zip(_offsets(block, ghosts), ghosts, strict=True))
    for run in block.runs:
        at, stop = run.display, run.display + run.length
        while at < stop:
            while waiting and waiting[0][0] <= at:
                builder.add_ghost(waiting.popleft()[1])
            end = min(stop, waiting[0][0]) if waiting else stop
            source = run.source + (at - run.display if run.is_identity else 0)
            builder.add(block.text[at:end], source, run.is_identity, run.look)
            at = end
    for _, ghost in waiting:
        builder.add_ghost(ghost)
    return builder.block(block, ends)


def _offsets(block: Block, ghosts: Sequence[Ghost]) -> list[int]:
    """Where the ghosts go in the display text: never inside a grapheme."""
    found = [block.display_of(ghost.at) for ghost in ghosts]
    if block.text.isascii():
        return found
    starts = [start for start, _, _ in split_graphemes(block.text)[0]] + [len(block.text)]
    return [starts[bisect_right(starts, offset) - 1] for offset in found]


def _listed(table: Block, ghosts: Sequence[Ghost], ends: Sequence[int]) -> Block:
    builder = _Builder()
    builder.add(TABLE_LABEL, -1, False, Look.MARKER)
    for index, ghost in enumerate(ghosts):
        builder.add(", " if index else "", -1, False, Look.MARKER)
        builder.add_ghost(ghost)
    empty = Block(kind=BlockKind.TEXT, text="", runs=(), prefix=table.cont, cont=table.cont)
    return builder.block(empty, ends)
