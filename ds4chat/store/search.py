"""Finding a text in what was said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ds4chat.store.clean import clean_line
from ds4chat.store.tree import Tree

_AROUND = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A place where the text stands. `who` is `you`, `reasoning` or `answer`."""

    turn_id: int
    who: str
    excerpt: str


def search(tree: Tree, text: str) -> Iterator[Hit]:
    """Every turn and part that holds `text`, case ignored, in the order of the turns."""
    wanted = text.casefold()
    if not wanted:
        return
    for turn in tree.turns.values():
        parts = (
            ("you", turn.question),
            ("reasoning", turn.reasoning_text),
            ("answer", turn.answer_text),
        )
        for who, said in parts:
            at = said.casefold().find(wanted)
            if at >= 0:
                yield Hit(turn_id=turn.id, who=who, excerpt=_excerpt(said, at, len(text)))


def _excerpt(said: str, at: int, length: int) -> str:
    begin, end = max(0, at - _AROUND), at + length + _AROUND
    before, after = "…" if begin else "", "…" if end < len(said) else ""
    return before + clean_line(said[begin:end]) + after
