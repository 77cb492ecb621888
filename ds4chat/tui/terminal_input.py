"""Bytes from the terminal, before Textual reads keys in them.

Textual 8.2 takes an escape character inside a bracketed paste for the start of a key sequence
and replays what follows as keys: a line end there would send the draft. Alt+Enter (escape,
carriage return) becomes plain Enter, and Alt with a digit what a Mac's Option key types (Alt+2
is "™"). All of that is set right here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.message import Message

PASTE_START = "\x1b[200~"
PASTE_END = "\x1b[201~"
ALT_ENTER = "\x1b\r"
NEWLINE_KEY = "\n"  # what Ctrl+J sends: the prompt's new line
ESCAPE_PICTURE = "␛"
_WAYS_OUT = ("\x03", "\x11")  # Ctrl+C, Ctrl+Q
_ALT_DIGIT = re.compile("\x1b([0-9])")


class InputFilter:
    """Rewrites a stream of terminal input that comes in pieces of any size."""

    def __init__(self) -> None:
        self._is_paste = False
        self._held = ""  # a beginning of PASTE_END, until more comes
        self._tail = ""  # the last characters before, to find a PASTE_START cut in two

    def feed(self, data: str) -> str:
        """Return what the key parser should see of this piece; it may be empty."""
        found: list[str] = []
        if self._is_paste and data in _WAYS_OUT:
            # Pressed, not pasted: the end of the paste was lost, and with it every key.
            self._is_paste, self._held = False, ""
            return PASTE_END + data
        data, self._held = self._held + data, ""
        while data:
            part, data = self._pasted(data) if self._is_paste else self._typed(data)
            found.append(part)
        return "".join(found)

    def _typed(self, data: str) -> tuple[str, str]:
        """Everything up to the start of a paste."""
        joined = self._tail + data
        at = joined.find(PASTE_START)
        if at < 0:
            self._tail = joined[1 - len(PASTE_START) :]
            return _keys(data), ""
        n_before = at + len(PASTE_START) - len(self._tail)
        self._is_paste, self._tail = True, ""
        return _keys(data[:n_before]), data[n_before:]

    def _pasted(self, data: str) -> tuple[str, str]:
        """Everything up to the end of the paste, escapes made visible."""
        at = data.find(PASTE_END)
        if at >= 0:
            self._is_paste = False
            end = at + len(PASTE_END)
            return _harmless(data[:at]) + PASTE_END, data[end:]
        n_held = _overlap(data, PASTE_END)
        self._held = data[len(data) - n_held :]
        return _harmless(data[: len(data) - n_held]), ""


class ChatParser(XTermParser):
    """Textual's parser of terminal input behind the filter."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._filter = InputFilter()

    def feed(self, data: str) -> Iterable[Message]:
        """Parse a piece; no data at all means the end."""
        filtered = self._filter.feed(data)
        if data and not filtered:
            return ()
        return super().feed(filtered)


def guard(driver: type[Driver]) -> None:
    """Let a driver read through the filter; one without that parser stays as it is.

    Textual has no place to give a driver its parser, so the name in its module is replaced.
    """
    module = sys.modules[driver.__module__]
    if vars(module).get("XTermParser") is XTermParser:
        vars(module)["XTermParser"] = ChatParser


def _keys(data: str) -> str:
    """Alt+Enter as a new line, Alt+digit in the form of the kitty protocol."""
    data = data.replace(ALT_ENTER, NEWLINE_KEY)
    return _ALT_DIGIT.sub(lambda found: f"\x1b[{ord(found[1])};3u", data)


def _harmless(text: str) -> str:
    return text.replace("\x1b", ESCAPE_PICTURE)


def _overlap(text: str, ending: str) -> int:
    """Length of the longest end of `text` that begins `ending`, without being all of it."""
    longest = min(len(text), len(ending) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(ending[:n])), 0)
