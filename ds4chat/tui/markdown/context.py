"""Where parsing starts and may start again: what passes between parser and reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ds4chat.tui.markdown.block import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What came before the parsed stretch.

    Attributes:
        at: Offset of the stretch in the whole reply.
        lead: Stands for the beginning of a paragraph that was cut; parsed, never shown.
        is_first: No block came before.
        after_blank: The line before is blank.
        previous: Token type of the top-level block before.
        is_inside: The stretch goes on inside the quote that came before.
    """

    at: int = 0
    lead: str = ""
    is_first: bool = True
    after_blank: bool = False
    previous: str = ""
    is_inside: bool = False


class Boundary(NamedTuple):
    """A place where parsing may start again: the first `n_blocks` blocks are then final."""

    n_blocks: int
    context: Context


class OpenFence(NamedTuple):
    """A top-level fence without an end. Offsets count in the whole reply."""

    n_blocks: int  # blocks before it, all final
    at: int
    mark: str
    indent: int
    info: tuple[str, int] | None  # label and its offset
    content_at: int
    gap: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Blocks of the stretch, the last place to start from, and a fence still open."""

    blocks: list[Block]
    boundary: Boundary | None
    fence: OpenFence | None
