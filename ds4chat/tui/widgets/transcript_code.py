"""Syntax of code blocks, for the colour mode in which provenance does not own the colour.

Only blocks of replies that have ended are looked at, when they are painted for the first
time: a lexer over a growing fence would cost more than the reply.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from textual.highlight import HighlightTheme, highlight

from ds4chat.tui.markdown.block import Block

KINDS = ("comment", "string", "number", "keyword", "name")
MAX_CHARACTERS = 8_000  # of a block; longer ones stay plain
MAX_KEPT = 64  # blocks

_PREFIXES = {
    "Token.Comment": "comment",
    "Token.Literal.String": "string",
    "Token.String": "string",
    "Token.Literal.Number": "number",
    "Token.Number": "number",
    "Token.Keyword": "keyword",
    "Token.Operator.Word": "keyword",
    "Token.Name.Function": "name",
    "Token.Name.Class": "name",
    "Token.Name.Decorator": "name",
}


def _kind(token: object) -> str:
    """Our kind of a lexer's token type; empty for plain text."""
    name = str(token)
    return next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), "")


class _Kinds(HighlightTheme):
    """Names kinds instead of styles."""

    STYLES = {token: _kind(token) for token in HighlightTheme.STYLES}  # noqa: RUF012


class CodePieces:
    """Kinds of the characters of code blocks, the last ones kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Block, list[tuple[int, int, str]]]] = OrderedDict()

    def pieces(self, block: Block, start: int, end: int) -> Iterator[tuple[int, int, str]]:
        """The pieces of a slice of the display text: start, end, kind (empty: plain)."""
        for first, last, kind in self._all(block):
            if last > start and first < end:
                yield max(first, start), min(last, end), kind

    def _all(self, block: Block) -> list[tuple[int, int, str]]:
        kept = self._kept.get(id(block))
        if kept is not None and kept[0] is block:
            return kept[1]
        found = _pieces(block)
        self._kept[id(block)] = (block, found)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found


def _pieces(block: Block) -> list[tuple[int, int, str]]:
    """Lex a block; its characters without gaps."""
    code = block.text[block.code_at :]
    shown = highlight(code, language=block.language, theme=_Kinds)
    found: list[tuple[int, int, str]] = []
    done = 0
    spans = sorted(shown.spans) if shown.plain == code else []
    for span in spans:
        start, end, kind = span.start + block.code_at, span.end + block.code_at, str(span.style)
        if start < done or kind not in KINDS:
            continue
        if start > done:
            found.append((done, start, ""))
        found.append((start, end, kind))
        done = end
    if done < len(block.text):
        found.append((done, len(block.text), ""))
    return found
