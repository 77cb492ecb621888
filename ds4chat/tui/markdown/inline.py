"""Inline Markdown with source positions.

markdown-it gives positions for blocks only. The state below notes where each inline token
starts; rules push their tokens while `pos` still stands at the start of their match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import table
from markdown_it.rules_inline.state_inline import StateInline
from markdown_it.token import Token

from ds4chat.tui.markdown.block import Look
from ds4chat.tui.markdown.clean import clean_line

# Beyond these a paragraph is shown as written: the link rule is quadratic in open brackets.
MAX_BRACKETS = 200
MAX_INLINE = 16_384
MAX_MARKS = 2000
_MARKS = "*_~`<&\\["

_LOOKS = {"strong": Look.BOLD, "em": Look.ITALIC, "s": Look.STRIKE, "link": Look.LINK}


class Inline(NamedTuple):
    """Display text for `n` characters of the content from `at`."""

    text: str
    at: int
    n: int
    look: int


class _PositionedState(StateInline):
    """Notes in `token.meta["s"]` where a token starts."""

    pending_at = 0

    def append_pending(self, text: str) -> None:
        if not self.pending:
            self.pending_at = self.pos
        super().append_pending(text)

    def pushPending(self) -> Token:  # noqa: N802 - markdown-it's name
        token = super().pushPending()
        token.meta["s"] = self.pending_at
        token.meta["pos"] = -1
        return token

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        token = super().push(ttype, tag, nesting)
        start = self.pos
        if len(self.tokens) > 1:
            # A run of delimiters is pushed one by one from the same position.
            last = self.tokens[-2]
            if last.type == ttype == "text" and last.meta.get("pos") == self.pos:
                start = last.meta["s"] + len(last.content)
        token.meta["s"] = start
        token.meta["pos"] = self.pos
        return token


def make_parser() -> MarkdownIt:
    """The Markdown dialect of replies.

    CommonMark with tables and strikethrough. Off: HTML (shown as written), setext headings
    ("Steps:" followed by "-" would flash as a heading before every list), references (a late
    definition would rewrite finished text), images (shown as a link with its mark).
    """
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    md.enable("strikethrough")
    # Last: a line that starts a heading, list or fence does so at once, whatever the next
    # line makes of it. (markdown-it asks for tables first.)
    md.block.ruler.before("paragraph", "table_last", table, {"alt": ["paragraph", "reference"]})
    md.disable(["lheading", "reference", "html_block", "html_inline", "image"])
    md.inline.ruler2.disable("fragments_join")
    md.normalizeLinkText = _as_written  # type: ignore[assignment, method-assign]
    return md


def _as_written(url: str) -> str:
    return url


def parse_inline(md: MarkdownIt, content: str) -> Iterator[Inline]:
    """Yield the visible parts of inline content, in order.

    A soft break is a space, a hard break a line feed. The target of a link follows its text in
    parentheses: nothing is hidden behind words.
    """
    if _is_overloaded(content):
        yield from _as_text(content, 0, Look.PLAIN)
        return
    state = _PositionedState(content, md, {}, [])
    md.inline.tokenize(state)
    for rule in md.inline.ruler2.getRules(""):
        rule(state)
    look = Look.PLAIN
    opened = 0
    for token in state.tokens:
        name, _, edge = token.type.rpartition("_")
        if name in _LOOKS:
            look = look | _LOOKS[name] if edge == "open" else look & ~_LOOKS[name]
            if token.type == "link_open":
                opened = token.meta["s"]
            elif token.type == "link_close" and token.markup != "autolink":
                yield from _target(md, content, opened, token.meta["s"])
        else:
            yield from _leaf(token, content, look)


def _is_overloaded(content: str) -> bool:
    """Whether parsing would take so long that keys must wait."""
    return (
        len(content) > MAX_INLINE
        or content.count("[") > MAX_BRACKETS
        or sum(map(content.count, _MARKS)) > MAX_MARKS
    )


def _leaf(token: Token, content: str, look: int) -> Iterator[Inline]:
    """Display parts of a token without children."""
    at: int = token.meta["s"]
    text = token.content
    if token.type == "text":
        if text:
            at += 1 if content[at] == "<" and text[0] != "<" else 0
            yield Inline(text, at, len(text), look)
    elif token.type == "text_special":
        n = len(token.markup)
        if token.info == "escape" and len(text) < n:
            at, n = at + 1, n - 1
        yield Inline(clean_line(text), at, n, look)
    elif token.type == "code_inline":
        at += len(token.markup)
        at += 1 if content[at : at + len(text)].replace("\n", " ") != text else 0
        yield from _as_text(content[at : at + len(text)], at, look | Look.CODE)
    elif token.type in ("softbreak", "hardbreak"):
        feed = content.index("\n", at)
        yield Inline("\n" if token.type == "hardbreak" else " ", feed, 1, look)


def _target(md: MarkdownIt, content: str, opened: int, closer: int) -> Iterator[Inline]:
    """The target, as written, of the link whose text lies between the two offsets."""
    at = closer + 2
    while at < len(content) and content[at] in " \t\n":
        at += 1
    found = md.helpers.parseLinkDestination(content, at, len(content))
    url = content[at : found.pos] if found.ok else ""
    if url and url != content[opened:closer]:
        yield Inline(" (", closer + 1, 1, Look.LINK)
        yield Inline(url, at, len(url), Look.LINK)
        yield Inline(")", at + len(url) - 1, 1, Look.LINK)


def _as_text(content: str, at: int, look: int) -> Iterator[Inline]:
    for index, line in enumerate(content.split("\n")):
        if index:
            yield Inline(" ", at - 1, 1, look)
        yield Inline(line, at, len(line), look)
        at += len(line) + 1
