"""One channel of one reply in the transcript: its rows, and the line it folds into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ds4chat.protocol.types import Channel, Source, Span
from ds4chat.tui.markdown.block import Block
from ds4chat.tui.markdown.ghosts import Haunted
from ds4chat.tui.markdown.reply import SOURCES, Reply
from ds4chat.tui.widgets.transcript_rows import Column, Row, Section, Tone, plain_block

CUT_SHORT = "ended by you"


class ChannelView:
    """The rows of one channel.

    Reasoning shows a summary line when it has ended or is folded; the answer never folds.
    """

    def __init__(self, channel: Channel, section: Section, label: str, now: float) -> None:
        self.channel = channel
        self.reply = Reply()
        self.section = section
        self.is_folded = False
        self.is_ended = False
        self._haunted: Haunted | None = None
        self._label = label
        self._started = now
        self._seconds = 0.0
        self._clocked: tuple[float, float] | None = None  # first and last engine second
        self._tone = Tone.THINKING if channel is Channel.THINKING else Tone.ANSWER

    def append(self, spans: Sequence[Span], at_s: float) -> None:
        """Take tokens; they are shown by `flush`."""
        self.reply.append(spans, at_s)
        self._clocked = (self._clocked[0] if self._clocked else at_s, at_s)

    @property
    def is_haunted(self) -> bool:
        """Whether rejected drafts stand in the text."""
        return self._haunted is not None

    def haunt(self, rejected: Mapping[int, str] | None) -> None:
        """Have rejected drafts (text by round) in the text from the next `show` on, or none."""
        self._haunted = Haunted(self.reply, rejected) if rejected is not None else None

    def flush(self, column: Column) -> int | None:
        """Show what came; return the first changed line, None when nothing changed."""
        changed = self.reply.flush()
        if changed >= len(self.reply.blocks):
            return None
        first = self._drawn_from(changed)
        return self.show(column) if self.is_folded else self._show_blocks(column, first)

    def _drawn_from(self, changed: int) -> int:
        """The first drawn block that is new when those of the reply are from `changed` on."""
        return changed if self._haunted is None else self._haunted.update(changed)

    def end(self, column: Column, now: float, *, fold: bool) -> int | None:
        """The channel is complete: parse it once more as a whole.

        Args:
            column: Where its rows stand.
            now: Seconds, for the duration of reasoning.
            fold: Whether reasoning folds.

        Returns:
            The first changed line, None when nothing changed.
        """
        if self.is_ended:
            return None
        self.is_ended = True
        first_s, last_s = self._clocked or (0.0, 0.0)
        # A saved reply comes at once: then the engine's clock says how long it took.
        self._seconds = max(now - self._started, last_s - first_s)
        changed = self._drawn_from(self.reply.settle())
        if self.channel is Channel.THINKING:
            self.is_folded = self.is_folded or fold
            return self.show(column)
        return self._show_blocks(column, changed)

    def show(self, column: Column) -> int:
        """Build all rows anew; return the first changed line."""
        old = {id(row.block): row for row in self.section.rows}
        rows = [self._summary()] if self._has_summary else []
        if not self.is_folded:
            rows += [self._row(block, len(rows) + i) for i, block in enumerate(self._blocks(0))]
        return column.replace(self.section, 0, [self._reuse(old, row) for row in rows])

    def _show_blocks(self, column: Column, first: int) -> int:
        head = self._has_summary
        rows = [
            self._row(block, head + first + i) for i, block in enumerate(self._blocks(first))
        ]
        return column.replace(self.section, head + first, rows)

    def _blocks(self, first: int) -> list[Block]:
        blocks = self.reply.blocks if self._haunted is None else self._haunted.blocks
        return blocks[first:]

    @property
    def _has_summary(self) -> bool:
        return self.channel is Channel.THINKING and (self.is_folded or self.is_ended)

    def _summary(self) -> Row:
        mark = "▸" if self.is_folded else "▾"
        count = f"{len(self.reply.log)} tok"
        text = (
            f"thought {self._seconds:.1f} s · {count}"
            if self.is_ended
            else f"thinking · {count}"
        )
        if self._is_cut_short:
            text = f"{text} · {CUT_SHORT}"
        block = plain_block(f"{mark} {text}")
        if self._is_cut_short:  # the end mark has no text: these words show where it came from
            block.starts.append(len(block.text) - len(CUT_SHORT))
            block.tokens.append(len(self.reply.log) - 1)
            block.looks.append(block.looks[0])
        return Row(
            block=block,
            tone=Tone.SUMMARY,
            label=self._label,
            log=self.reply.log,
            gap=self.section.start > 0,
        )

    @property
    def _is_cut_short(self) -> bool:
        """Whether the program put the end of the reasoning there ("answer now")."""
        log = self.reply.log
        if not (self.is_ended and len(log)) or SOURCES[log.sources[-1]] is not Source.FORCED:
            return False
        return log.ends[-1] == (log.ends[-2] if len(log) > 1 else 0)

    def _row(self, block: Block, index: int) -> Row:
        return Row(
            block=block,
            tone=self._tone,
            label="" if index else self._label,
            reply=self.reply,
            gap=index == 0 and self.section.start > 0,
        )

    @staticmethod
    def _reuse(old: dict[int, Row], row: Row) -> Row:
        """The row that showed the same block before, so that anchors hold."""
        before = old.get(id(row.block))
        if before is None or (before.label, before.gap) != (row.label, row.gap):
            return row
        return before
