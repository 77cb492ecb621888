"""Make text harmless for a terminal, one character for one character.

Offsets survive, so provenance can be kept by position. Must run before anything is parsed.
"""

from __future__ import annotations

import re

_REPLACEMENT = "�"


def _table() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
    table[0x7F] = "␡"
    # C1 controls (0x9B is a one-character CSI), the soft hyphen (invisible), bidirectional
    # marks and overrides, line and paragraph separators, interlinear marks, BOM, surrogates.
    hostile = [
        (0x80, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E),
        (0x2066, 0x206F), (0xFFF9, 0xFFFB), (0xFEFF, 0xFEFF), (0xD800, 0xDFFF),
        (0xE0000, 0xE001F),
    ]  # fmt: skip
    for first, last in hostile:
        table.update(dict.fromkeys(range(first, last + 1), _REPLACEMENT))
    return table


_TABLE = _table()
_WHITE = {0x09: " ", 0x0A: " "}
# A joiner needs something to join: at the start of a line it would swallow the next character.
_LOOSE_JOINER = re.compile(r"(^|\s)\u200d")


def clean(text: str) -> str:
    """Replace every character that could control a terminal; the length stays the same.

    Tab and line feed stay. C0 controls become their pictures (U+2400 + n), DEL U+2421, and C1,
    bidirectional controls, line separators and lone surrogates U+FFFD.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_TABLE)


def clean_line(text: str) -> str:
    """Like `clean`, for text that must stay on one line: tab and line feed become spaces."""
    return clean(text).translate(_WHITE)


def clean_joiners(text: str, before: str) -> str:
    """Replace zero-width joiners that stand at the start of a line or after white space.

    Args:
        text: Display text without line feeds.
        before: The character displayed before it, or "" at the start.
    """
    if "\u200d" not in text:
        return text
    fixed = _LOOSE_JOINER.sub(rf"\g<1>{_REPLACEMENT}", before + text)
    return fixed[len(before) :]
