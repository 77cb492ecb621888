"""Characters as a person sees them: what no colour and no line break may divide."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.cells import CellSpan

_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_LINKERS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d"
"""Signs that join two consonants into one (Unicode annex 29, Indic_Conjunct_Break=Linker)."""
_BLOCK = 128  # code points of an Indic script
_JOINED = re.compile(f"{_FLAG_LETTER.pattern}|[{_LINKERS}]")


def graphemes(line: str) -> list[CellSpan]:
    """Start, end and cells of each character of one line, as Unicode annex 29 says.

    Rich's own leaves the two letters of a flag apart, and the parts of an Indic conjunct.
    """
    from rich.cells import split_graphemes  # noqa: PLC0415 - a list of sessions needs none

    found = split_graphemes(line)[0]
    if not _JOINED.search(line):
        return found
    whole: list[CellSpan] = []
    for start, end, cells in found:
        if whole and _is_one(line[whole[-1][0] : start], line[start]):
            first, _, before = whole.pop()
            whole.append((first, end, before + cells))
        else:
            whole.append((start, end, cells))
    return whole


def _is_one(before: str, first: str) -> bool:
    """Whether a character goes on with `first`."""
    if _FLAG_LETTER.match(first):
        return _FLAG_LETTER.fullmatch(before) is not None
    end = before.rstrip("\u200d")[-1:]
    return (
        bool(end)
        and end in _LINKERS
        and unicodedata.category(first) == "Lo"
        and ord(first) // _BLOCK == ord(end) // _BLOCK
    )
