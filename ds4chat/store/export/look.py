"""The colours of a document with provenance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import Source

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")

CSS_ATTRIBUTES: Mapping[Source, str] = {
    Source.ACCEPTED: "",
    Source.FALLBACK: "text-decoration:underline",
    Source.BONUS: "font-weight:bold",
    Source.PLAIN: "font-style:italic",
    Source.FORCED: "outline:1px solid",
}
"""What tells the sources apart without colour."""

MEANINGS: Mapping[Source, str] = {
    Source.ACCEPTED: "drafted, and the target agreed",
    Source.FALLBACK: "the target's token where the draft was wrong",
    Source.BONUS: "the target's token after a fully accepted block",
    Source.PLAIN: "a plain step, or the first token of a reply",
    Source.FORCED: "put there by the program",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Colours as `#rrggbb`; `dim` is for reasoning, ghosts and notes."""

    sources: Mapping[Source, str]
    background: str
    foreground: str
    dim: str

    def __post_init__(self) -> None:
        """Raises SessionFileError for a colour that is none, or one that is missing."""
        others = {"background": self.background, "foreground": self.foreground, "dim": self.dim}
        colours = {str(source): self.sources.get(source, "") for source in Source} | others
        for what, colour in colours.items():
            if not _COLOUR.fullmatch(colour):
                raise SessionFileError(f"{what}: {colour!r:.40} is no colour", "Want #rrggbb.")
