"""Provenance must be told apart with few colours, and without any."""

from __future__ import annotations

import pytest
from rich.color import Color, ColorSystem

from ds4chat.protocol.types import Source
from ds4chat.tui.palette import ATTRIBUTES, DARK, LIGHT, ColourMode, Palette

SEEN = (Source.ACCEPTED, Source.FALLBACK, Source.BONUS, Source.PLAIN)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.1)."""
    parts = [part / 255 for part in Color.parse(colour).get_truecolor()]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def every(palette: Palette) -> set[str]:
    return {
        *palette.sources.values(),
        *palette.positions,
        *palette.confidences,
        palette.neutral,
    }


def test_every_source_has_its_own_attribute() -> None:
    assert set(ATTRIBUTES) == set(Source)
    assert len(set(ATTRIBUTES.values())) == len(Source)


@pytest.mark.parametrize("palette", [DARK, LIGHT])
def test_every_source_has_its_own_colour(palette: Palette) -> None:
    assert set(palette.sources) == set(Source)
    assert len(set(palette.sources.values())) == len(Source)


def test_dark_colours_stay_different_in_sixteen() -> None:
    numbers = [
        Color.parse(DARK.by_source(source)).downgrade(ColorSystem.STANDARD).number
        for source in SEEN
    ]
    assert numbers == [10, 9, 14, 7]


@pytest.mark.parametrize(("palette", "ground"), [(DARK, 0.0), (LIGHT, 1.0)])
def test_colours_can_be_read(palette: Palette, ground: float) -> None:
    for colour in every(palette):
        light, dark = sorted((luminance(colour), ground), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour


def test_position_and_confidence_scales() -> None:
    assert DARK.by_position(0) == DARK.neutral
    assert DARK.by_position(1) == DARK.positions[0]
    assert DARK.by_position(99) == DARK.positions[-1]
    assert DARK.by_confidence(None) == DARK.neutral
    assert DARK.by_confidence(0.0) == DARK.confidences[0]
    assert DARK.by_confidence(0.5) == DARK.confidences[2]
    assert DARK.by_confidence(1.0) == DARK.confidences[-1]


def test_modes_go_round() -> None:
    mode, seen = ColourMode.OFF, []
    for _ in range(4):
        seen.append(mode)
        mode = mode.following()
    assert mode is ColourMode.OFF
    assert len(set(seen)) == 4
