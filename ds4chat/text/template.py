"""Reads string variables out of a chat template's text. The template is never executed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

MAX_TEMPLATE_CHARS = 1_000_000

_STRING = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_OPENING = re.compile(r"\{[%{#]")
_RAW = re.compile(r"[-+]?\s*raw\s*[-+]?%\}")
_END_RAW = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_INSIDE = {
    "{%": re.compile(rf"(?:{_STRING}|(?![-+]?%\}})[^\"'])*+[-+]?%\}}", re.DOTALL),
    "{{": re.compile(rf"(?:{_STRING}|(?!-?\}}\}})[^\"'])*+-?\}}\}}", re.DOTALL),
    "{#": re.compile(r".*?#\}", re.DOTALL),
}
_SET = re.compile(
    rf"[-+]?\s*set\s+([A-Za-z_]\w*)\s*=\s*((?:{_STRING})(?:\s*(?:[~+]\s*)?(?:{_STRING}))*)\s*[-+]?%\}}",
    re.DOTALL,
)
_LITERAL = re.compile(_STRING, re.DOTALL)
_ESCAPE = re.compile(
    r"\\(\n|[\\'\"abfnrtv]|[0-7]{1,3}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
)
_SIMPLE = {
    "\n": "", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b",
    "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip


def string_variables(template: str, names: Collection[str]) -> dict[str, str]:
    """Values of `{% set NAME = "literal" %}` statements; a later one replaces an earlier one.

    Understood are string literals with their escapes, and several joined by `~`, `+` or
    nothing. Statements in comments, raw blocks, expressions and strings do not count. A
    statement that computes its value is as if absent.
    """
    values: dict[str, str] = {}
    if len(template) > MAX_TEMPLATE_CHARS:
        return values
    for statement in _statements(template):
        found = _SET.fullmatch(statement)
        if found and found[1] in names:
            literals = _LITERAL.findall(found[2])
            values[found[1]] = "".join(_unescape(literal[1:-1]) for literal in literals)
    return values


def _statements(template: str) -> Iterator[str]:
    """The inner text of every `{% ... %}`, its `%}` included."""
    at = 0
    while opening := _OPENING.search(template, at):
        inside = _INSIDE[opening[0]].match(template, opening.end())
        if inside is None:  # unterminated: jinja would refuse the template
            return
        at = inside.end()
        if opening[0] != "{%":
            continue
        if _RAW.fullmatch(inside[0]):
            end = _END_RAW.search(template, at)
            if end is None:
                return
            at = end.end()
        else:
            yield inside[0]


def _unescape(body: str) -> str:
    """Replace the escapes of a string literal; unknown ones stay as written."""
    return _ESCAPE.sub(lambda found: _character(found[1]), body)


def _character(escape: str) -> str:
    """The character that an escape (without its backslash) stands for."""
    if escape in _SIMPLE:
        return _SIMPLE[escape]
    code = int(escape[1:], 16) if escape[0] in "xuU" else int(escape, 8)
    return chr(code) if code <= 0x10FFFF else "\ufffd"
