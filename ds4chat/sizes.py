"""Amounts of bytes in words: decimal everywhere, as disks and downloads are counted."""

from __future__ import annotations

GB = 10**9
_UNITS = ("B", "kB", "MB", "GB")


def size(n_bytes: int) -> str:
    """`512 B`, `4 kB`, `3.4 MB`, `80.8 GB`."""
    power = _power(n_bytes)
    return f"{_number(n_bytes, power)} {_UNITS[power]}"


def part(n_bytes: int, total: int) -> str:
    """`21.3 of 80.8 GB`: both in the unit of the whole."""
    power = _power(total)
    return f"{_number(n_bytes, power)} of {_number(total, power)} {_UNITS[power]}"


def fine_size(n_bytes: int) -> str:
    """`612 bytes`, `1.50 kB`, `86.73 GB`: for telling two files apart."""
    power = _power(n_bytes)
    return f"{n_bytes / 1_000**power:.2f} {_UNITS[power]}" if power else f"{n_bytes} bytes"


def _power(n_bytes: int) -> int:
    power = 0
    while power < len(_UNITS) - 1 and n_bytes >= 1_000 ** (power + 1):
        power += 1
    return power


def _number(n_bytes: int, power: int) -> str:
    return f"{n_bytes / 1_000**power:.{1 if power > 1 else 0}f}"
