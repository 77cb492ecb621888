"""A screen as text that can be compared and read: its lines, and below them its styles."""

from __future__ import annotations

from itertools import groupby

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

_MARKS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def styled(strips: list[Strip]) -> str:
    """Lines, then per line its styles as `mark` and cells, then what the marks mean."""
    marks: dict[str, str] = {}
    rows = []
    for y, strip in enumerate(strips):
        parts = [(described(style), cell_len(text)) for text, style, _ in strip]
        runs = [
            f"{_mark(marks, look)}{sum(cells for _, cells in group)}"
            for look, group in groupby(parts, key=lambda part: part[0])
        ]
        rows.append(f"{y:>2} {' '.join(runs)}")
    lines = [strip.text.rstrip() for strip in strips]
    legend = [f"{mark} = {look}" for look, mark in marks.items()]
    return "\n".join([*lines, "~ styles", *rows, "~ meaning", *legend])


def _mark(marks: dict[str, str], look: str) -> str:
    if look not in marks:
        marks[look] = _MARKS[len(marks)] if len(marks) < len(_MARKS) else f"({len(marks)})"
    return marks[look]


def described(style: Style | None) -> str:
    """Colours and attributes of a style in a fixed order."""
    if style is None:
        return "plain"
    names = [
        name
        for name in ("bold", "dim", "italic", "underline", "strike", "reverse")
        if getattr(style, name)
    ]
    fore = style.color.name if style.color is not None else "default"
    back = style.bgcolor.name if style.bgcolor is not None else "default"
    return " ".join([fore, "on", back, *names])
