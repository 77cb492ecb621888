"""A slow tokenizer written from the description alone: no regular expressions, no library."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Sequence

ASCII_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
WHITE = {
    *"\t\n\v\f\r \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000",
    *map(chr, range(0x2000, 0x200B)),
}

Matcher = Callable[[str, int], int]
"""End of the match that starts at a position, or the position itself for none."""


def is_kind(char: str, kinds: str) -> bool:
    return unicodedata.category(char)[0] in kinds


def run(text: str, at: int, belongs: Callable[[str], bool]) -> int:
    while at < len(text) and belongs(text[at]):
        at += 1
    return at


def match_digits(text: str, at: int) -> int:
    return min(run(text, at, lambda c: is_kind(c, "N")), at + 3)


def match_cjk(text: str, at: int) -> int:
    return run(text, at, lambda c: "一" <= c <= "龥" or "\u3040" <= c <= "\u30ff")


def match_words(text: str, at: int) -> int:
    for rule in (_punctuated, _letters, _symbols, _newlines, _spaces_before, _spaces):
        end = rule(text, at)
        if end > at:
            return end
    return at


def _punctuated(text: str, at: int) -> int:
    if text[at] not in ASCII_PUNCTUATION:
        return at
    end = run(text, at + 1, lambda c: c.isascii() and c.isalpha())
    return end if end > at + 1 else at


def _letters(text: str, at: int) -> int:
    if text[at] not in "\r\n" and not is_kind(text[at], "LPS"):
        end = run(text, at + 1, lambda c: is_kind(c, "LM"))
        if end > at + 1:
            return end
    return run(text, at, lambda c: is_kind(c, "LM"))


def _symbols(text: str, at: int) -> int:
    start = at + 1 if text[at] == " " else at
    end = run(text, start, lambda c: is_kind(c, "PS"))
    return run(text, end, lambda c: c in "\r\n") if end > start else at


def _newlines(text: str, at: int) -> int:
    end = run(text, at, lambda c: c in WHITE)
    while end > at and text[end - 1] not in "\r\n":
        end -= 1
    return end


def _spaces_before(text: str, at: int) -> int:
    end = run(text, at, lambda c: c in WHITE)
    return end if end == len(text) else max(at, end - 1)


def _spaces(text: str, at: int) -> int:
    return run(text, at, lambda c: c in WHITE)


def isolate(pieces: Sequence[str], match: Matcher) -> list[str]:
    """Cut each piece into matches and what lies between them."""
    out: list[str] = []
    for piece in pieces:
        start = at = 0
        while at < len(piece):
            end = match(piece, at)
            if end == at:
                at += 1
                continue
            out += [part for part in (piece[start:at], piece[at:end]) if part]
            start = at = end
        if start < len(piece):
            out.append(piece[start:])
    return out


def split(text: str) -> list[str]:
    pieces = [text] if text else []
    for match in (match_digits, match_cjk, match_words):
        pieces = isolate(pieces, match)
    return pieces


def byte_symbols() -> list[str]:
    """One character for each byte, by the published rule."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, extra = [], 256
    for byte in range(256):
        if byte in own:
            symbols.append(chr(byte))
        else:
            symbols.append(chr(extra))
            extra += 1
    return symbols


SYMBOLS = byte_symbols()


def merge_word(word: Sequence[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """Merge the adjacent pair of lowest rank, leftmost first, until none is left."""
    word = list(word)
    while True:
        found = [
            (ranks[pair], at)
            for at, pair in enumerate(itertools.pairwise(word))
            if pair in ranks
        ]
        if not found:
            return word
        _, at = min(found)
        word[at : at + 2] = [word[at] + word[at + 1]]


def encode(text: str, tokens: Sequence[str], merges: Sequence[str]) -> list[int]:
    ids = {token: i for i, token in enumerate(tokens)}
    ranks: dict[tuple[str, str], int] = {}
    for rank, merge in enumerate(merges):
        left, right = merge.split(" ")
        ranks.setdefault((left, right), rank)
    return [
        ids[symbol]
        for piece in split(text)
        for symbol in merge_word([SYMBOLS[b] for b in piece.encode()], ranks)
    ]
