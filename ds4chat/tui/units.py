"""Numbers in the few characters that a status line has."""

from __future__ import annotations


def tokens(n: int) -> str:
    """`812`, `4.1k`, `32k`, `1.0M`."""
    if n < 1_000:
        return str(n)
    if n < 10_000 and n % 1_024:
        return f"{n / 1_000:.1f}k"
    if n < 999_500:
        return f"{n // 1_024}k" if n % 1_024 == 0 else f"{n / 1_000:.0f}k"
    return f"{n / 1_000_000:.1f}M"


def seconds(value: float) -> str:
    """`0.03 s`, `0.3 s`, `12 s`, `2 min 05 s`."""
    if value < 0.1:
        return f"{value:.2f} s"
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def milliseconds(value_s: float) -> str:
    """`3.1` or `24`: milliseconds without their unit."""
    value = value_s * 1_000
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"
