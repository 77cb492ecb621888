"""One channel of a reply while it grows: its text, its tokens and its blocks.

A flush parses only what can still change: the text from the start of the last open block on.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ds4chat.protocol.types import Source, Span
from ds4chat.tui.markdown.block import Block
from ds4chat.tui.markdown.clean import clean
from ds4chat.tui.markdown.code import CHUNK_LINES, closing_fence, code_block, language_of
from ds4chat.tui.markdown.context import Context, OpenFence
from ds4chat.tui.markdown.parser import MarkdownParser

SOURCES = tuple(Source)
NO_CONFIDENCE = 255
MAX_SETTLED = 24_000  # characters: about 50 ms
_SOURCE_CODES = {source: code for code, source in enumerate(SOURCES)}
_PARSER = MarkdownParser()


class TokenLog:
    """Provenance of the tokens of one channel, by token index, in compact arrays.

    Attributes:
        ends: Text length after each token, in code points.
        sources: Index into `SOURCES`.
        positions: Place in the block, at most 255.
        confidences: 0..254 for 0..1, `NO_CONFIDENCE` for none.
        rounds: Round number.
        ids: Token ids.
        margins: The target's top-1 minus top-2 logit.
        times: Engine seconds that the turn had decoded for.
    """

    def __init__(self) -> None:
        self.ends = array("l")
        self.sources = bytearray()
        self.positions = bytearray()
        self.confidences = bytearray()
        self.rounds = array("l")
        self.ids = array("l")
        self.margins = array("f")
        self.times = array("f")

    def __len__(self) -> int:
        return len(self.ends)

    def add(self, span: Span, at_s: float = 0.0) -> None:
        """Note one token; its text follows that of the tokens before."""
        token = span.token
        self.ends.append((self.ends[-1] if self.ends else 0) + len(span.text))
        self.sources.append(_SOURCE_CODES[token.source])
        self.positions.append(max(0, min(token.position, 255)))
        is_known = token.confidence is not None and token.confidence == token.confidence
        level = round(254 * max(0.0, min(token.confidence or 0.0, 1.0))) if is_known else 255
        self.confidences.append(level)
        self.rounds.append(token.round)
        self.ids.append(token.id)
        self.margins.append(token.margin)
        self.times.append(at_s)


class Reply:
    """The growing text of one channel as blocks.

    Attributes:
        log: The tokens.
        blocks: What is displayed; all before `n_final` will not change any more.
        n_parsed: Characters given to the parser so far, for watching the cost.
    """

    def __init__(self) -> None:
        self.log = TokenLog()
        self.blocks: list[Block] = []
        self.n_final = 0
        self.n_parsed = 0
        self._final_text: list[str] = []
        self._tail = ""
        self._new: list[str] = []
        self._context = Context()
        self._fence: _GrowingFence | None = None
        self._n_flushes = 0
        self._is_settled = False

    @property
    def text(self) -> str:
        """The cleaned text."""
        return "".join((*self._final_text, self._tail, *self._new))

    @property
    def is_settled(self) -> bool:
        """Whether all text has come."""
        return self._is_settled

    def append(self, spans: Iterable[Span], at_s: float = 0.0) -> None:
        """Take new tokens, committed at `at_s`; `flush` shows them."""
        for span in spans:
            self.log.add(span, at_s)
            if span.text:
                self._new.append(clean(span.text))

    def flush(self, *, is_end: bool = False) -> int:
        """Bring `blocks` up to date.

        Args:
            is_end: No more text will come.

        Returns:
            The index of the first block that may have changed.
        """
        if not self._new and not is_end:
            return len(self.blocks)
        if self._is_settled:
            self._restart()
        changed = self.n_final
        self._tail = "".join((self._tail, *self._new))
        self._new.clear()
        self._n_flushes += 1
        before = self.blocks[changed:]
        del self.blocks[changed:]
        while self._step(is_end=is_end):
            pass
        same = self._keep_same(before, changed)
        for block in self.blocks[changed + same :]:
            block.assign(self.log.ends)
        return changed + same

    def _keep_same(self, before: Sequence[Block], first: int) -> int:
        """Put back the blocks that came out as they were; return how many.

        They keep their tokens, and whoever shows them keeps their layout: in a long list
        only the last items cost anything.
        """
        same = 0
        for old, new in zip(before, self.blocks[first:], strict=False):
            if old.structure() != new.structure():
                break
            self.blocks[first + same] = old
            same += 1
        n_new = len(self.blocks) - first
        # Where blocks went away the last one counts as changed, so that they are noticed.
        return max(0, same - 1) if same == n_new < len(before) else same

    def settle(self) -> int:
        """Take the end of the text, and parse all of it once more unless it came at once.

        A very long text is left as it is: parsing it would block the keys.

        Blocks that come out the same stay the same objects.

        Returns:
            The index of the first block that changed; all blocks are final.
        """
        before = self.n_final
        is_whole = self._n_flushes < 2
        self.flush(is_end=True)
        self._is_settled = True
        if is_whole:
            self.n_final = len(self.blocks)
            return before
        if len(self.log.ends) and self.log.ends[-1] > MAX_SETTLED:
            self.n_final = len(self.blocks)
            return before
        whole = Reply()
        whole.log = self.log
        whole._tail = self.text
        whole.flush(is_end=True)
        self.n_parsed += whole.n_parsed
        same = 0
        for old, new in zip(self.blocks, whole.blocks, strict=False):
            if not old.same_picture(new):
                break
            same += 1
        self.blocks[same:] = whole.blocks[same:]
        self.n_final = len(self.blocks)
        return min(before, same)

    def _restart(self) -> None:
        """Forget the blocks: text came after the end was declared."""
        self._tail = self.text
        self._new.clear()
        self._final_text.clear()
        self._context, self._fence = Context(), None
        self._is_settled = False
        self.n_final = 0
        self.blocks.clear()

    def _step(self, *, is_end: bool) -> bool:
        """Build the blocks of the tail; true when a new mode must look at its rest."""
        if self._fence is not None:
            return self._grow_fence(self._fence, is_end=is_end)
        self.n_parsed += len(self._tail)
        parsed = _PARSER.parse(self._tail, self._context)
        if parsed.fence is not None:
            self.blocks += parsed.blocks[: parsed.fence.n_blocks]
            self.n_final = len(self.blocks)
            self._fence = _GrowingFence(parsed.fence)
            self._advance(parsed.fence.at)
            return True
        self.blocks += parsed.blocks
        if parsed.boundary is not None:
            self.n_final += parsed.boundary.n_blocks
            self._advance(parsed.boundary.context.at)
            self._context = parsed.boundary.context
        return False

    def _grow_fence(self, fence: _GrowingFence, *, is_end: bool) -> bool:
        self.n_parsed += len(self._tail)
        is_closed = fence.grow(self._tail, self._context.at, is_end=is_end)
        self.blocks += fence.blocks
        self.n_final += fence.n_final
        self._advance(fence.at)
        if is_closed:
            self._fence = None
            self._context = Context(at=fence.at, is_first=False, previous="fence")
        return is_closed

    def _advance(self, at: int) -> None:
        """Drop the text before `at` from the tail."""
        n = at - self._context.at
        if n:
            self._final_text.append(self._tail[:n])
            self._tail = self._tail[n:]
        self._context = replace(self._context, at=at, lead="")


class _GrowingFence:
    """An open fence: grown line by line, never parsed.

    Attributes:
        blocks: Blocks from the last call; the first `n_final` are final.
        at: Where the next call must start.
    """

    def __init__(self, fence: OpenFence) -> None:
        self._fence = fence
        self._closing = closing_fence(fence.mark)
        self.blocks: list[Block] = []
        self.n_final = 0
        self.at = fence.at

    def grow(self, text: str, base: int, *, is_end: bool) -> bool:
        """Rebuild the last chunk from its text; true when the fence was closed.

        Args:
            text: Everything from `at` on.
            base: The offset of `text` in the reply.
            is_end: No more text will come.
        """
        self.blocks, self.n_final, self.at = [], 0, base
        rows: list[tuple[str, int]] = []
        place = max(0, self._fence.content_at - base)
        while place < len(text):
            end = text.find("\n", place)
            line = text[place:] if end < 0 else text[place:end]
            is_complete = end >= 0 or is_end
            if is_complete and self._closing.fullmatch(line):
                self._close_chunk(text, base, rows)
                self.n_final = len(self.blocks)
                self.at = base + min(len(text), place + len(line) + 1)
                return True
            if not is_complete and self._may_close(line):
                break
            if len(rows) == CHUNK_LINES:
                self._close_chunk(text, base, rows)
                self.n_final, self.at, rows = len(self.blocks), base + place, []
            strip = min(self._fence.indent, len(line) - len(line.lstrip(" ")))
            rows.append((line[strip:], place + strip))
            place += len(line) + 1
        self._close_chunk(text, base, rows)
        return False

    def _close_chunk(self, text: str, base: int, rows: list[tuple[str, int]]) -> None:
        """Make a block of the rows; the first of the fence bears its label."""
        is_first = base == self._fence.at and not self.blocks
        info = self._fence.info if is_first else None
        label = None if info is None else (info[0], info[1] - base)
        block = code_block(text, base, rows, label, language_of(self._fence.info))
        block.gap = is_first and self._fence.gap
        self.blocks.append(block)

    def _may_close(self, line: str) -> bool:
        """Whether an unfinished line could still become the end of the fence."""
        return bool(line) and not line.strip().strip(self._fence.mark[0])
