"""Rejected drafts in the text: struck through, before the token that came instead."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ds4chat.store.graphemes import graphemes
from ds4chat.tui.markdown.block import Block, BlockKind, Look, Run
from ds4chat.tui.markdown.clean import clean_line
from ds4chat.tui.markdown.reply import Reply, TokenLog

FEED = "↵"  # a line feed in a ghost
TABLE_LABEL = "wrong drafts in the table: "


class Ghost(NamedTuple):
    """Rejected text and the source offset before which it is shown."""

    at: int
    text: str


def ghosts_of(log: TokenLog, rejected: Mapping[int, str], behind: int = -1) -> list[Ghost]:
    """Where the rejected drafts of each round belong: behind the round's last token.

    Args:
        log: The tokens of one channel.
        rejected: Joined text of the rejected drafts, by round.
        behind: Only ghosts after this source offset.
    """
    first = bisect_right(log.ends, behind)
    tail = zip(log.rounds[first:], log.ends[first:], strict=True)
    last = {number: end for number, end in tail if number in rejected}
    return sorted(
        Ghost(end, clean_line(rejected[number].replace("\n", FEED)))
        for number, end in last.items()
        if rejected[number]
    )


def with_ghosts(
    blocks: Sequence[Block], ghosts: Iterable[Ghost], ends: Sequence[int]
) -> list[list[Block]]:
    """What to draw for each block, the ghosts in it; one without any stays the same object.

    A table keeps its columns: its ghosts are listed in a block below it.
    """
    waiting = deque(ghosts)
    found: list[list[Block]] = []
    for index, block in enumerate(blocks):
        is_last = index == len(blocks) - 1
        own: list[Ghost] = []
        while waiting and (is_last or waiting[0].at <= last_source(block)):
            own.append(waiting.popleft())
        if not own:
            found.append([block])
        elif block.kind is BlockKind.TABLE:
            found.append([block, _listed(block, own, ends)])
        else:
            found.append([_inserted(block, own, ends)])
    return found


class Haunted:
    """The blocks of a reply with its rejected drafts in them, while it grows.

    Attributes:
        blocks: What is drawn.
    """

    def __init__(self, reply: Reply, rejected: Mapping[int, str]) -> None:
        """Put the ghosts in.

        Args:
            reply: One channel.
            rejected: Text of the rejected drafts by round; may grow.
        """
        self._reply = reply
        self._rejected = rejected
        self._counts: list[int] = []  # drawn blocks of each block of the reply
        self._lasts: list[int] = []  # the last source offset up to each block
        self.blocks: list[Block] = []
        self.update(0)

    def update(self, changed: int) -> int:
        """Follow the reply, whose blocks from `changed` on are new.

        Returns:
            The index of the first drawn block that is new. The block before `changed` is drawn
            again too: while it was the last one, it bore the ghosts behind it.
        """
        first = max(0, min(changed, len(self._counts)) - 1)
        start = sum(self._counts[:first])
        del self.blocks[start:], self._counts[first:], self._lasts[first:]
        behind = self._lasts[-1] if self._lasts else -1
        log, tail = self._reply.log, self._reply.blocks[first:]
        ghosts = ghosts_of(log, self._rejected, behind)
        for block, drawn in zip(tail, with_ghosts(tail, ghosts, log.ends), strict=True):
            self.blocks += drawn
            self._counts.append(len(drawn))
            behind = max(behind, last_source(block))
            self._lasts.append(behind)
        return start


def last_source(block: Block) -> int:
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
    starts = [start for start, _, _ in graphemes(block.text)] + [len(block.text)]
    return [starts[bisect_right(starts, offset) - 1] for offset in found]


def _listed(table: Block, ghosts: Sequence[Ghost], ends: Sequence[int]) -> Block:
    builder = _Builder()
    builder.add(TABLE_LABEL, -1, False, Look.MARKER)
    for index, ghost in enumerate(ghosts):
        builder.add(", " if index else "", -1, False, Look.MARKER)
        builder.add_ghost(ghost)
    empty = Block(kind=BlockKind.TEXT, text="", runs=(), prefix=table.cont, cont=table.cont)
    return builder.block(empty, ends)
