"""What provenance looks like: a colour and a text attribute for every source.

The attributes stay where colours can not be seen (`NO_COLOR`, monochrome, colour blindness).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from ds4chat.protocol.types import Source


class ColourMode(StrEnum):
    """What the colour of generated text tells."""

    OFF = "off"
    SOURCE = "source"
    POSITION = "position"
    CONFIDENCE = "confidence"

    def following(self) -> ColourMode:
        """The next mode, for a key that goes round."""
        modes = list(ColourMode)
        return modes[(modes.index(self) + 1) % len(modes)]


class Attribute(StrEnum):
    """A text attribute that every terminal has."""

    NONE = "none"
    UNDERLINE = "underline"
    BOLD = "bold"
    ITALIC = "italic"
    REVERSE = "reverse"


ATTRIBUTES: Mapping[Source, Attribute] = MappingProxyType(
    {
        Source.ACCEPTED: Attribute.NONE,
        Source.FALLBACK: Attribute.UNDERLINE,
        Source.BONUS: Attribute.BOLD,
        Source.PLAIN: Attribute.ITALIC,
        Source.FORCED: Attribute.REVERSE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Colours as `#rrggbb`.

    Attributes:
        sources: One per source. In 16 colours they must stay different after rounding.
        positions: By place in the block from 1; the last one serves all beyond.
        confidences: From 0 to 1 in equal steps.
        neutral: For tokens to which the mode does not apply (no draft, no confidence).
    """

    sources: Mapping[Source, str]
    positions: tuple[str, ...]
    confidences: tuple[str, ...]
    neutral: str

    def by_source(self, source: Source) -> str:
        """The colour of a source."""
        return self.sources[source]

    def by_position(self, position: int) -> str:
        """The colour of a place in the block; 0 is the target's own token."""
        if position < 1:
            return self.neutral
        return self.positions[min(position, len(self.positions)) - 1]

    def by_confidence(self, confidence: float | None) -> str:
        """The colour of a draft confidence in 0..1, None for a token that was not drafted."""
        if confidence is None:
            return self.neutral
        step = int(confidence * len(self.confidences))
        return self.confidences[max(0, min(step, len(self.confidences) - 1))]


DARK = Palette(
    sources=MappingProxyType(
        {
            Source.ACCEPTED: "#55ff55",
            Source.FALLBACK: "#ff5555",
            Source.BONUS: "#55ffff",
            Source.PLAIN: "#d0d0d0",
            Source.FORCED: "#aaaaaa",
        }
    ),
    positions=("#55ff55", "#55ffff", "#7f9fff", "#ff55ff", "#ffff55"),
    confidences=("#ff5555", "#ff9955", "#ffff55", "#aaff55", "#55ff55"),
    neutral="#d0d0d0",
)
LIGHT = Palette(
    sources=MappingProxyType(
        {
            Source.ACCEPTED: "#007700",
            Source.FALLBACK: "#bb0000",
            Source.BONUS: "#006f8f",
            Source.PLAIN: "#303030",
            Source.FORCED: "#555555",
        }
    ),
    positions=("#007700", "#006f8f", "#0000bb", "#990099", "#7a5c00"),
    confidences=("#bb0000", "#a04a00", "#7a5c00", "#4a6a00", "#007700"),
    neutral="#303030",
)
