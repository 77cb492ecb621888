"""Overlong paragraphs are cut, so that no flush parses more than a bounded text."""

from __future__ import annotations

MAX_PARAGRAPH = 8192  # characters; longer ones are cut at the first word after half of it


def cut_paragraph(content: str) -> list[tuple[int, int]]:
    """Where an overlong paragraph is cut; a cut never moves when text is added behind."""
    cuts, start = [], 0
    while len(content) - start > MAX_PARAGRAPH:
        limit = start + MAX_PARAGRAPH
        cut = next(
            (
                i
                for i in range(start + MAX_PARAGRAPH // 2, limit)
                if content[i - 1].isspace() and not content[i].isspace()
            ),
            limit,
        )
        cuts.append((start, cut))
        start = cut
    return [*cuts, (start, len(content))]


def lead_after(char: str) -> str:
    """What stands for the first part of a paragraph that was cut behind `char`."""
    return f"x{char}" if char in " \t\n" else "x"
