"""Numbers and sizes on the command line, for argparse: what is wrong, and what is wanted."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from ds4chat.settings_row import as_typed
from ds4chat.smallfile import shown

MAX_TOKENS = 1 << 20  # the longest context of a published file
MAX_REPEAT = 1_000
LEAST_SIZE, MOST_SIZE = (40, 10), (1_000, 500)  # columns and rows of a terminal

_MAX_DIGITS = 20
_WHOLE = re.compile("[+-]?[0-9]+")
_SIZE = re.compile("([0-9]{1,5})x([0-9]{1,5})")


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type of argument: a whole number of that range."""
    wanted = f"a whole number from {least} to {most}"

    def read(text: str) -> int:
        if len(text) > _MAX_DIGITS or not _WHOLE.fullmatch(text):
            raise _refuse(text, wanted)
        value = int(text)
        if not least <= value <= most:
            raise _refuse(text, wanted)
        return value

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """A type of argument: a number of that range."""
    wanted = f"a number from {as_typed(least)} to {as_typed(most)}"

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise _refuse(text, wanted) from None
        if not least <= value <= most:  # nor is what is no number
            raise _refuse(text, wanted)
        return value

    return read


def terminal_size(text: str) -> str:
    """A type of argument: columns x rows; `pair` takes them apart."""
    found = _SIZE.fullmatch(text)
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(
        least <= n <= most for n, least, most in zip(size, LEAST_SIZE, MOST_SIZE, strict=True)
    ):
        least, most = (f"{columns}x{rows}" for columns, rows in (LEAST_SIZE, MOST_SIZE))
        raise _refuse(text, f"columns x rows, such as 120x45, from {least} to {most}")
    return text


def pair(size: str) -> tuple[int, int]:
    """Columns and rows of a size that was checked."""
    columns, _, rows = size.partition("x")
    return int(columns), int(rows)


def _refuse(text: str, wanted: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{shown(text)} is not {wanted}")
