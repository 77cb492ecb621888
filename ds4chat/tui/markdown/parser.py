"""Parse a stretch of a reply into blocks, and say where parsing may start next time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ds4chat.tui.markdown.block import Block, BlockKind, Canvas, Cell, Look, Table
from ds4chat.tui.markdown.code import CHUNK_LINES, closing_fence, code_block, language_of
from ds4chat.tui.markdown.containers import Containers
from ds4chat.tui.markdown.context import Boundary, Context, OpenFence, Parsed
from ds4chat.tui.markdown.inline import make_parser, parse_inline
from ds4chat.tui.markdown.lines import ContentMap, OffsetMap, Places, ShiftedMap, SourceLines
from ds4chat.tui.markdown.paragraph import cut_paragraph, lead_after
from ds4chat.tui.markdown.tables import RawCell, alignments, split_row

RULE = "─" * 40
MAX_LEVEL = 90  # containers nested deeper are shown as written

_SPACED = frozenset({"heading_open", "fence", "code_block", "table_open", "hr"})
_CLOSED_BY_LINE = frozenset({"heading_open", "fence", "hr"})
_PARENTS = frozenset({"bullet_list_open", "ordered_list_open", "blockquote_open"})


class MarkdownParser:
    """Parses stretches of one dialect. Holds no state between calls."""

    def __init__(self) -> None:
        self._md = make_parser()

    def parse(self, text: str, context: Context) -> Parsed:
        """Parse a stretch that starts at a boundary.

        Args:
            text: Cleaned text (see `clean`).
            context: What came before it.
        """
        source = context.lead + text
        tokens: list[Token] = []
        # Trailing line feeds change nothing, and there may be thousands.
        self._md.block.parse(source.rstrip("\n"), self._md, {}, tokens)
        walk = _Walk(self._md, source, context)
        if any(token.level >= MAX_LEVEL for token in tokens):
            walk.as_written()
        else:
            walk.run(tokens)
        return walk.result()


class _Walk:
    """One pass over the block tokens of a stretch."""

    def __init__(self, md: MarkdownIt, source: str, context: Context) -> None:
        self.md = md
        self.lines = SourceLines(source)
        self.context = context
        self.base = context.at - len(context.lead)
        self.blocks: list[Block] = []
        self.containers = Containers(self.lines, self.base)
        self.top = context.previous  # type of the top-level block being built
        self.before_top = context.previous  # and of the one before it
        self.is_top_start = False
        self.is_glued = False  # the next block belongs to the marker just shown
        self.top_line = 0
        self.end_line = 0  # line behind the last top-level block
        self.boundary: Boundary | None = None
        self.fence: OpenFence | None = None

    def run(self, tokens: Sequence[Token]) -> None:
        """Build the blocks of all tokens."""
        idx = 0
        while idx < len(tokens):
            token = tokens[idx]
            if token.nesting >= 0 and token.map and token.type != "inline":
                self._enter(token)
            idx = self._token(tokens, idx)

    def as_written(self) -> None:
        """Show the stretch without any structure (its nesting is out of bounds)."""
        canvas = Canvas(self.lines.source, self.base)
        at = len(self.context.lead)
        for index, line in enumerate(self.lines.source[at:].split("\n")):
            if index:
                canvas.add("\n", at - 1, 1)
            canvas.add_tabbed(line, at)
            at += len(line) + 1
        self._add(canvas, BlockKind.TEXT, 0)

    def result(self) -> Parsed:
        """What was found; a block that can not change any more moves the boundary behind it."""
        last = self.lines.n_complete
        if self.fence is None and last and self._is_last_closed(last):
            self.boundary = Boundary(len(self.blocks), self._context_at(last, self.top))
        return Parsed(blocks=self.blocks, boundary=self.boundary, fence=self.fence)

    def _is_last_closed(self, n_complete: int) -> bool:
        if self.end_line == 0:
            return not self.context.lead and not self.blocks
        if self.top == "paragraph_open":
            return self.end_line < n_complete
        return self.top in _CLOSED_BY_LINE and self.end_line <= n_complete

    # Boundaries

    def _enter(self, token: Token) -> None:
        """Note where a block starts, and whether parsing may start there next time."""
        line = _first_line(token)
        if token.level == 0:
            self._set_boundary(token, line, self.top)
            self.before_top, self.top = self.top, token.type
            self.is_top_start = True
            self.top_line = line
            self.end_line = (token.map or [0, 0])[1]
        elif token.level == 1 and self.top in _PARENTS and line > self.top_line:
            is_item = token.type == "list_item_open"
            if is_item or self._is_quote_child(line):
                self._set_boundary(token, line, self.top, is_inside=not is_item)

    def _is_quote_child(self, line: int) -> bool:
        """Whether a line starts a later block of a quote, and would open a quote by itself."""
        return self.containers.has_blocks and self.lines.lines[line][:4].lstrip(" ")[:1] == ">"

    def _set_boundary(
        self, token: Token, line: int, previous: str, *, is_inside: bool = False
    ) -> None:
        # A line decides what it starts only when it is complete; a table needs two.
        needed = line + 2 if token.type == "table_open" else line + 1
        is_decided = needed <= self.lines.n_complete or (
            token.level == 0 and self._is_closed(previous, line)
        )
        if line and is_decided:
            context = replace(self._context_at(line, previous), is_inside=is_inside)
            self.boundary = Boundary(len(self.blocks), context)

    def _is_closed(self, previous: str, line: int) -> bool:
        """Whether the top-level block before `line` can not go on there."""
        after_blank = (
            previous == "paragraph_open" and line > 0 and self.lines.is_blank(line - 1)
        )
        return after_blank or previous in _CLOSED_BY_LINE

    def _context_at(self, line: int, previous: str) -> Context:
        if line == 0:
            return self.context
        return Context(
            at=self.base + self.lines.starts[line],
            is_first=self.context.is_first and not self.blocks,
            after_blank=self.lines.is_blank(line - 1),
            previous=previous,
        )

    # Blocks

    def _token(self, tokens: Sequence[Token], idx: int) -> int:
        """Build what starts at a token; return the index of the next one to look at."""
        token = tokens[idx]
        if token.type in ("paragraph_open", "heading_open"):
            self._text(token, tokens[idx + 1].content)
            return idx + 3
        if token.type == "table_open":
            self._table(token)
            while tokens[idx].type != "table_close":
                idx += 1
        elif token.type in ("fence", "code_block"):
            self._code(token)
        elif token.type == "hr":
            self._rule(token)
        else:
            self._container(token)
        return idx + 1

    def _container(self, token: Token) -> None:
        line = _first_line(token)
        if token.type == "blockquote_open":
            is_inside = self.context.is_inside and not self.blocks
            self.containers.open_quote(line, has_blocks=is_inside)
        elif token.type == "list_item_open":
            self.containers.open_item(line, token.info, token.markup)
        elif token.type in ("blockquote_close", "list_item_close"):
            self._show_markers(self.containers.line)
            self.is_glued = False
            self.containers.close()

    def _show_markers(self, line: int) -> None:
        """Give markers that stand before no text a block of their own."""
        if self.containers.has_hidden:
            canvas, prefix = self.containers.start()
            self._add(canvas, BlockKind.TEXT, line, prefix)
            self.is_glued = True

    def _add(
        self,
        canvas: Canvas,
        kind: BlockKind,
        line: int,
        prefix: str = "",
        *,
        table: Table | None = None,
    ) -> None:
        cont = self.containers.cont
        block = Block(
            kind=kind,
            text=canvas.text,
            runs=canvas.runs,
            prefix=prefix,
            cont=cont,
            table=table,
        )
        self._append(block, line)

    def _append(self, block: Block, line: int) -> None:
        """Add a block that starts on a source line; set its gap."""
        is_first = self.context.is_first and not self.blocks
        is_joined = bool(self.context.lead) and not self.blocks
        if not is_first and not is_joined and not self.is_glued:
            spaced = self.top in _SPACED or self.before_top in _SPACED
            after_blank = self.lines.is_blank(line - 1) if line else self.context.after_blank
            block.gap = after_blank or (self.is_top_start and spaced)
            block.gap_prefix = self.containers.gap_prefix if block.gap else ""
        self.is_top_start = self.is_glued = False
        self.containers.note_block()
        self.blocks.append(block)

    def _text(self, token: Token, content: str) -> None:
        line = _first_line(token)
        if token.type == "heading_open":
            self._heading(token, line, content)
        elif token.level == 0:
            self._paragraph(line, content)
        else:
            canvas, prefix = self.containers.start()
            self._inline(canvas, content, ContentMap(self.lines, line, content))
            self._add(canvas, BlockKind.TEXT, line, prefix)

    def _heading(self, token: Token, line: int, content: str) -> None:
        canvas, prefix = self.containers.start()
        mark_at = self.containers.find(line, token.markup)
        canvas.add(token.markup, mark_at, len(token.markup), Look.HEADING | Look.MARKER)
        if content:
            behind = mark_at + len(token.markup)
            at = self.lines.source.index(content, behind)
            canvas.add(" ", behind, 1, Look.HEADING)
            places = OffsetMap(range(at, at + len(content)))
            self._inline(canvas, content, places, look=Look.HEADING)
        self._add(canvas, BlockKind.TEXT, line, prefix)

    def _paragraph(self, line: int, content: str) -> None:
        """A top-level paragraph; an overlong one becomes several blocks."""
        places = ContentMap(self.lines, line, content)
        lead = self.context.lead if line == 0 and not self.blocks else ""
        skip = len(lead)
        content = content[skip:]
        for start, end in cut_paragraph(content):
            if start:
                lead = lead_after(content[start - 1])
                at = self.base + places.source(skip + start)
                context = Context(at=at, lead=lead, is_first=False, previous=self.top)
                self.boundary = Boundary(len(self.blocks), context)
            if content:
                canvas = Canvas(self.lines.source, self.base)
                chunk = content[start:end]
                self._inline(canvas, chunk, ShiftedMap(places, skip + start), lead=lead)
                self._add(canvas, BlockKind.TEXT, line)
                if start:
                    self.blocks[-1].gap, self.blocks[-1].gap_prefix = False, ""

    def _inline(
        self, canvas: Canvas, content: str, places: Places, *, look: int = 0, lead: str = ""
    ) -> None:
        """Draw inline content; `lead` is parsed before it and not drawn."""
        for text, start, n, inner in parse_inline(self.md, lead + content):
            hidden = max(0, len(lead) - start)
            if n > hidden:
                at = start + hidden - len(lead)
                canvas.add_mapped(text[hidden:], at, n - hidden, places, inner | look)

    def _rule(self, token: Token) -> None:
        line = _first_line(token)
        self._show_markers(line)
        canvas, prefix = self.containers.start()
        end = self.lines.starts[line] + len(self.lines.lines[line].rstrip())
        canvas.add(RULE, end - 1, 1, Look.MARKER)
        self._add(canvas, BlockKind.RULE, line, prefix)

    def _code(self, token: Token) -> None:
        first = _first_line(token)
        self._show_markers(first)
        is_fence = token.type == "fence"
        rows = [
            (row, self.lines.starts[idx] + self.lines.column_of(idx, row))
            for idx, row in enumerate(token.content.split("\n")[:-1], first + is_fence)
        ]
        info = self._info(token) if is_fence else None
        if is_fence and token.level == 0:
            self._note_open_fence(token, info)
        prefix = self.containers.cont
        for start in range(0, max(len(rows), 1), CHUNK_LINES):
            chunk = rows[start : start + CHUNK_LINES]
            block = code_block(
                self.lines.source, self.base, chunk, None if start else info, language_of(info)
            )
            block.prefix, block.cont = prefix + block.prefix, prefix + block.cont
            self._append(block, first)
            if start:
                block.gap, block.gap_prefix = False, ""

    def _info(self, token: Token) -> tuple[str, int] | None:
        """The label behind a fence's mark, with its offset."""
        line = _first_line(token)
        label = token.info.strip()
        if not label:
            return None
        mark = self.lines.lines[line].index(token.markup, self.containers.column(line))
        column = self.lines.lines[line].index(label, mark + len(token.markup))
        return label, self.lines.starts[line] + column

    def _note_open_fence(self, token: Token, info: tuple[str, int] | None) -> None:
        """Remember a fence whose end has not come yet, once its first line is complete."""
        first = _first_line(token)
        last = (token.map or [0, 1])[1] - 1
        mark = token.markup
        if last > first and closing_fence(mark).fullmatch(self.lines.lines[last]):
            return
        if first < self.lines.n_complete:
            raw = self.lines.lines[first]
            self.fence = OpenFence(
                n_blocks=len(self.blocks),
                at=self.base + self.lines.starts[first],
                mark=mark,
                indent=len(raw) - len(raw.lstrip(" ")),
                info=None if info is None else (info[0], self.base + info[1]),
                content_at=self.base + self.lines.starts[first + 1],
                gap=self._fence_gap(first),
            )

    def _fence_gap(self, line: int) -> bool:
        is_first = self.context.is_first and not self.blocks
        return not is_first and (line > 0 or not self.context.lead)

    def _table(self, token: Token) -> None:
        first, end = token.map or [0, 0]
        self._show_markers(first)
        canvas, prefix = self.containers.start()
        rows = []
        for line in (first, *range(first + 2, end)):
            raw = self.lines.lines[line]
            column = self.containers.column(line)
            column += len(raw[column:]) - len(raw[column:].lstrip(self.containers.indents))
            row = split_row(raw[column:], self.lines.starts[line] + column)
            look = Look.BOLD if line == first else Look.PLAIN
            rows.append(tuple(self._cell(canvas, cell, look) for cell in row))
        width = max(len(row) for row in rows)
        blank = (Cell(canvas.length, canvas.length),)
        table = Table(
            rows=tuple(row + blank * (width - len(row)) for row in rows),
            aligns=alignments(self.lines.lines[first + 1].lstrip(self.containers.indents)),
        )
        self._add(canvas, BlockKind.TABLE, first, prefix, table=table)

    def _cell(self, canvas: Canvas, cell: RawCell, look: int) -> Cell:
        if canvas.length:
            canvas.add_drawn("\n")
        start = canvas.length
        self._inline(canvas, cell.content, OffsetMap(cell.sources), look=look)
        return Cell(start, canvas.length)


def _first_line(token: Token) -> int:
    return token.map[0] if token.map else 0
