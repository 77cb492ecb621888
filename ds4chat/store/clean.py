"""Text of a file made harmless for a terminal, a web page or a drawing."""

from __future__ import annotations

import unicodedata

_KEPT = "\t\n"
_BAD = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # needed inside words and emoji


def clean(text: str) -> str:
    """Replace control and invisible formatting characters by U+FFFD; tab and line feed stay.

    What is left can move no cursor, reverse no line, and stand in an XML 1.0 document.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_harmless(c) else "\ufffd" for c in text)


def clean_line(text: str, limit: int = 0) -> str:
    """`clean` on one line, white space as single spaces; `limit` cuts it unless that is 0."""
    line = " ".join(clean(text[: 4 * limit] if limit else text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1] + "…"


def _is_harmless(char: str) -> bool:
    if char in _KEPT or char in _JOINERS:
        return True
    category = unicodedata.category(char)
    return category not in _BAD and category != "Cf" and char not in "\ufffe\uffff"
