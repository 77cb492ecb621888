"""What a check of `ds4chat doctor` found, and how it is shown. Pure: values in, words out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from ds4chat.store.clean import clean_line

JSON_VERSION = 1
_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}
_WIDTH = 4
_MAX_CHARS = 2000


class Mark(StrEnum):
    """How it is: usable, usable with a drawback, or unusable."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report. `fix`: what to do next; a mark other than ok has one."""

    section: str
    name: str
    mark: Mark
    found: str
    fix: str = ""


def ok(section: str, name: str, found: str, hint: str = "") -> Finding:
    """All is well."""
    return Finding(section=section, name=name, mark=Mark.OK, found=found, fix=hint)


def warn(section: str, name: str, found: str, fix: str) -> Finding:
    """Usable, with a drawback."""
    return Finding(section=section, name=name, mark=Mark.WARN, found=found, fix=fix)


def fail(section: str, name: str, found: str, fix: str) -> Finding:
    """Unusable."""
    return Finding(section=section, name=name, mark=Mark.FAIL, found=found, fix=fix)


def from_json(row: Mapping[str, Any]) -> Finding:
    """A finding that another process printed.

    Raises:
        ValueError: it is none.
    """
    names = {field.name for field in fields(Finding)}
    if set(row) != names or not all(isinstance(value, str) for value in row.values()):
        raise ValueError("not a finding")
    return Finding(**{**row, "mark": Mark(row["mark"])})


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """The same, sections together in the order in which they first come."""
    sections: dict[str, list[Finding]] = {}
    for finding in findings:
        sections.setdefault(finding.section, []).append(finding)
    return [finding for section in sections.values() for finding in section]


def has_failed(findings: Sequence[Finding]) -> bool:
    """Whether anything is unusable."""
    return any(finding.mark is Mark.FAIL for finding in findings)


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings have each mark."""
    return {str(mark): sum(f.mark is mark for f in findings) for mark in Mark}


def as_json(findings: Sequence[Finding], about: Mapping[str, str]) -> dict[str, Any]:
    """Everything as plain values; `about` says which program and machine."""
    return {
        "version": JSON_VERSION,
        **about,
        "ok": not has_failed(findings),
        "counts": counts(findings),
        "findings": [asdict(finding) for finding in findings],
    }


def render(findings: Sequence[Finding], *, is_coloured: bool = False) -> str:
    """The findings for a person: one line each under its section, a fix below it."""
    lines: list[str] = []
    section = ""
    width = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        if finding.section != section:
            section = finding.section
            lines += ["", section] if lines else [section]
        mark = _coloured(finding.mark, is_coloured=is_coloured)
        found = clean_line(finding.found, _MAX_CHARS)
        lines.append(f"  {mark} {clean_line(finding.name):<{width}}  {found}")
        pad = " " * (_WIDTH + width + 5)
        lines += [f"{pad}-> {clean_line(line)}" for line in finding.fix.splitlines()]
    return "\n".join([*lines, "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """The last line: whether anything must be mended, and how much works with a drawback."""
    n = counts(findings)
    if n["ok"] == len(findings):
        return f"All {n['ok']} checks are fine."
    failed = f"{_many(n['fail'], 'failure')} to mend" if n["fail"] else "Nothing fails"
    warned = f"; {_many(n['warn'], 'warning')} (it works all the same)" if n["warn"] else ""
    return f"{failed}{warned}; {n['ok']} fine."


def _many(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _coloured(mark: Mark, *, is_coloured: bool) -> str:
    word = f"{mark:<{_WIDTH}}"
    return f"\x1b[{_COLOURS[mark]}m{word}\x1b[0m" if is_coloured else word
