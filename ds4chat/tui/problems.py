"""A message that lists several problems of a file, as one line. Pure."""

from __future__ import annotations

_HEAD_END = " problems"
_MARK = "  - "


def brief(message: str) -> str:
    """One line: the file, its first problem, and how many more there are.

    Args:
        message: one line, or `FILE: N problems` and a line `  - PROBLEM` for each.
    """
    head, *rest = message.split("\n")
    found = [line.removeprefix(_MARK) for line in rest if line.startswith(_MARK)]
    if not found:
        return " ".join(part.strip() for part in (head, *rest))
    file = head.rpartition(": ")[0] if head.endswith(_HEAD_END) else head.rstrip(":")
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{file}: {found[0]}{more}"
