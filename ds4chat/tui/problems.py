"""Messages of errors as prose: sentences, and lists of problems as one line. Pure."""

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


def sentence(message: str, hint: str) -> str:
    """Message and hint as prose: capital first, full stop last.

    A hint that ends with a command or a file keeps that as it is to be typed.
    """
    last = hint.rsplit(" ", 1)[-1]
    is_typed = "/" in last or "." in last[:-1] or last.isupper()
    parts = [_capital(_stopped(message)), _capital(hint if is_typed else _stopped(hint))]
    return " ".join(part for part in parts if part)


def joined(message: str, hint: str) -> str:
    """Message and hint as one text that goes on behind other words: a stop between the two."""
    return f"{_stopped(message)} {hint}" if message and hint else message or hint


def _stopped(text: str) -> str:
    is_over = not text or text.endswith((".", "!", "?", "…"))
    return text + ("" if is_over else ".")


def _capital(text: str) -> str:
    first = text.split(" ", 1)[0]
    is_name = "/" in first or "." in first.rstrip(".") or first.endswith(":")
    is_name = is_name or first == "ds4chat"
    return text if is_name else text[:1].upper() + text[1:]
