"""Colour science for the tests of themes: contrast, dichromacy, difference."""

from __future__ import annotations

import math

Vector = tuple[float, float, float]
Sight = tuple[Vector, Vector, Vector]

# Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision
# Deficiency, 2009; severity 1, linear RGB.
PROTANOPIA = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
DEUTERANOPIA = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
NORMAL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))

# sRGB to XYZ (IEC 61966-2-1), white point D65.
_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
_WHITE = (0.95047, 1.0, 1.08883)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours `#rrggbb` (WCAG 2.1)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def difference(one: str, other: str, sight: Sight = NORMAL) -> float:
    """Distance in CIELAB (CIE76) for somebody with that sight; 2.3 is just noticeable."""
    a, b = _lab(_mix(sight, linear(one))), _lab(_mix(sight, linear(other)))
    return math.dist(a, b)


def linear(colour: str) -> Vector:
    """Linear RGB in 0..1."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return r, g, b


def _luminance(colour: str) -> float:
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def _mix(matrix: Sight, rgb: Vector) -> Vector:
    r, g, b = (
        min(1.0, max(0.0, sum(w * p for w, p in zip(row, rgb, strict=True)))) for row in matrix
    )
    return r, g, b


def _lab(rgb: Vector) -> Vector:
    def f(t: float) -> float:
        return t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29

    rows = (sum(w * p for w, p in zip(row, rgb, strict=True)) for row in _XYZ)
    x, y, z = (f(value / white) for value, white in zip(rows, _WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
