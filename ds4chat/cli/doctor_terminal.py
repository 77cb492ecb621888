"""The terminal as `ds4chat doctor` sees it. Pure: variables and sizes in, findings out."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass

from ds4chat.cli.doctor_finding import Finding, ok, warn

SECTION = "terminal"
MIN_COLUMNS, MIN_ROWS, PANEL_COLUMNS = 80, 24, 100

_DUMB = ("", "dumb", "unknown")
_NO_PASTE = ("linux", "vt100", "vt220")
_TRUE_COLOUR = ("truecolor", "24bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalFacts:
    """What is known without asking the terminal: `size` in columns and rows, None: no terminal.

    `variables` are those of `settings.terminal_variables`; `encoding` is that of output.
    """

    size: tuple[int, int] | None
    variables: Mapping[str, str]
    encoding: str


def check_terminal(facts: TerminalFacts) -> list[Finding]:
    """Everything about the terminal."""
    checks = (_size, _kind, _colour, _paste, _clipboard, _remote, _locale)
    return [finding for check in checks for finding in check(facts)]


def _size(facts: TerminalFacts) -> list[Finding]:
    if facts.size is None:
        return [
            warn(
                SECTION, "size", "no terminal: output goes to a file or a pipe",
                "Run it in the terminal that you chat in.",
            )
        ]  # fmt: skip
    columns, rows = facts.size
    words = f"{columns} x {rows}"
    if columns < MIN_COLUMNS or rows < MIN_ROWS:
        fix = f"Make the window at least {MIN_COLUMNS} x {MIN_ROWS}."
        return [warn(SECTION, "size", words, fix)]
    if columns < PANEL_COLUMNS:
        words += f" (the speculation panel needs {PANEL_COLUMNS} columns)"
    return [ok(SECTION, "size", words)]


def _kind(facts: TerminalFacts) -> list[Finding]:
    term = facts.variables.get("TERM", "")
    if term in _DUMB:
        return [
            warn(
                SECTION, "TERM", f"{term or 'not set'}: plain lines only, no screen",
                "Set TERM to what your terminal is, for example TERM=xterm-256color.",
            )
        ]  # fmt: skip
    program = facts.variables.get("TERM_PROGRAM", "")
    return [ok(SECTION, "TERM", f"{term} ({program})" if program else term)]


def _colour(facts: TerminalFacts) -> list[Finding]:
    term = facts.variables.get("TERM", "")
    if facts.variables.get("NO_COLOR"):
        found = "none, as NO_COLOR asks: sources are told apart by underline, bold and italic"
        return [ok(SECTION, "colours", found)]
    if term in _DUMB:
        return []
    if facts.variables.get("COLORTERM", "").lower() in _TRUE_COLOUR or term.endswith("-direct"):
        return [ok(SECTION, "colours", "true colour")]
    if "256" in term:
        hint = "If it can do more: COLORTERM=truecolor"
        return [ok(SECTION, "colours", "256", hint)]
    return [
        warn(
            SECTION, "colours", f"16 at the most, says TERM={term}",
            "If your terminal can do more: TERM=xterm-256color COLORTERM=truecolor",
        )
    ]  # fmt: skip


def _paste(facts: TerminalFacts) -> list[Finding]:
    if facts.variables.get("TERM", "") in (*_DUMB, *_NO_PASTE):
        return [
            warn(
                SECTION, "pasting", "this kind of terminal does not mark pasted text",
                "A pasted line end sends the message: /read FILE takes long texts instead.",
            )
        ]  # fmt: skip
    return [ok(SECTION, "pasting", "bracketed paste is asked for: pasted lines are not sent")]


def _clipboard(facts: TerminalFacts) -> list[Finding]:
    if facts.variables.get("TERM_PROGRAM", "") == "Apple_Terminal":
        return [
            warn(
                SECTION, "copying", "Apple's Terminal ignores OSC 52, by which text is copied",
                "Copied text is also in copied.txt in the state folder (below).",
            )
        ]  # fmt: skip
    hint = ""
    if facts.variables.get("TMUX"):
        hint = "tmux passes it on with: set -g set-clipboard on"
    elif facts.variables.get("STY"):
        hint = "screen does not pass it on: copied text is also in copied.txt"
    return [ok(SECTION, "copying", "by OSC 52; no terminal says whether it obeys", hint)]


def _remote(facts: TerminalFacts) -> list[Finding]:
    within = [
        words
        for name, words in (("TMUX", "tmux"), ("STY", "screen"), ("SSH_CONNECTION", "ssh"))
        if facts.variables.get(name)
    ]
    if not within:
        return []
    hints = ["Alt+1 .. Alt+6 stand for F1 .. F6 where those do not arrive."]
    if "tmux" in within:
        hints.append("Escape at once: set -sg escape-time 10")
    return [ok(SECTION, "within", " in ".join(within), "\n".join(hints))]


def _locale(facts: TerminalFacts) -> list[Finding]:
    try:
        is_utf8 = codecs.lookup(facts.encoding).name == "utf-8"
    except LookupError:
        is_utf8 = False
    if is_utf8:
        return [ok(SECTION, "characters", "UTF-8")]
    return [
        warn(
            SECTION, "characters", f"{facts.encoding or 'unknown'}: drawing is garbled",
            "Choose a UTF-8 locale, for example: export LANG=C.UTF-8",
        )
    ]  # fmt: skip
