"""Build replies for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ds4chat.protocol.types import Source, Span, Token
from ds4chat.tui.markdown.block import Block
from ds4chat.tui.markdown.layout import lay_out
from ds4chat.tui.markdown.reply import Reply


def span(text: str, source: Source = Source.PLAIN, confidence: float | None = None) -> Span:
    token = Token(id=1, source=source, round=3, position=2, confidence=confidence, margin=0.5)
    return Span(text=text, token=token)


def reply_of(texts: Iterable[str]) -> Reply:
    """A finished reply, one token for each text, parsed in one go."""
    reply = Reply()
    reply.append([span(text) for text in texts])
    reply.flush(is_end=True)
    return reply


def streamed(texts: Sequence[str], steps: Iterable[int]) -> Reply:
    """A finished reply, flushed after as many tokens as each step says (then one by one)."""
    reply = Reply()
    done = 0
    sizes = iter(steps)
    while done < len(texts):
        n = max(1, next(sizes, 1))
        reply.append([span(text) for text in texts[done : done + n]])
        reply.flush()
        done += n
    reply.flush(is_end=True)
    return reply


def drawn(blocks: Iterable[Block], width: int = 60) -> str:
    """What the blocks look like, without trailing spaces."""
    lines = []
    for block in blocks:
        for line in lay_out(block, width):
            parts = [
                item if isinstance(item, str) else block.text[item[0] : item[1]]
                for item in line
            ]
            lines.append("".join(parts).rstrip())
    return "\n".join(lines)


def token_of(block: Block, offset: int) -> int:
    """The token index of one display character."""
    return next(block.pieces(offset, offset + 1)).token
