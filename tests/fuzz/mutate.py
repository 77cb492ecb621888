"""Damage to bytes and texts, each a function of a generator: nothing here knows a format."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

INTS = (
    0, 1, 2, 3, 7, 8, 31, 32, 127, 128, 255, 256, 4095, 65_535, 65_536, 1 << 20, (1 << 31) - 1,
    1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 53) + 1, 1 << 62, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 2, (1 << 64) - 1,
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 0.5, 1.0, -1.0, 1e-320, 1e-38, 1e38, 3.4e38, 1e308, float("nan"), float("inf"),
    float("-inf"),
)  # fmt: skip
BAD_UTF8 = (
    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80", b"\x80",
    b"\xfe\xff",
)  # fmt: skip
NASTY = (
    "", " ", "\0", "\x1b[2J\x1b]0;x\x07", "\r", "\n", "\u202e", "\ufeff", "\u2028", "\ufffe",
    "\U0010ffff", "../../outside", "/etc/passwd", "..", "con", "a" * 64, "ü" * 300, "%s%n{0}",
    "-r", "~", "nan", "auto", "1e999", "0x10", "１２", "true", "<｜User｜>", "</think>",
    "'\"\\",
)  # fmt: skip

Mutator = Callable[[random.Random, bytearray], None]


def hostile_int(rng: random.Random, low: int = 0, high: int = (1 << 64) - 1) -> int:
    """A whole number within the bounds, most often one at which something overflows."""
    value = rng.choice(INTS) * rng.choice((1, 1, 1, -1))
    value += rng.choice((0, 0, 0, -1, 1))
    return min(max(value, low), high)


def hostile_text(rng: random.Random) -> str:
    """A text that a terminal, a path or a parser may take amiss; no lone surrogates."""
    text = rng.choice(NASTY)
    if rng.random() < 0.1:
        text *= rng.choice((2, 40, 5000))
    return text


def damage(rng: random.Random, data: bytes) -> bytes:
    """One to four byte-level mutations."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_BYTE_LEVEL)(rng, changed)
    return bytes(changed)


def _place(rng: random.Random, data: bytearray) -> int:
    """A position; the front, where heads stand, is as likely as all the rest."""
    end = len(data) if rng.random() < 0.5 else min(len(data), 512)
    return rng.randrange(end + 1)


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[min(_place(rng, data), len(data) - 1)] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    at = _place(rng, data)
    data[at : at + 1] = bytes([rng.choice((0, 1, 10, 32, 34, 44, 91, 93, 123, 125, 127, 255))])


def _number(rng: random.Random, data: bytearray) -> None:
    """A little-endian number of 2, 4 or 8 bytes over whatever stood there."""
    at, width = _place(rng, data), rng.choice((2, 4, 8))
    at -= at % rng.choice((1, 4))
    raw = struct.pack("<Q", rng.choice(INTS))[:width]
    data[at : at + width] = raw


def _insert(rng: random.Random, data: bytearray) -> None:
    at = _place(rng, data)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 8, 64)))


def _bad_text(rng: random.Random, data: bytearray) -> None:
    at = _place(rng, data)
    raw = rng.choice((*BAD_UTF8, *(text.encode() for text in NASTY)))
    data[at : at + rng.choice((0, len(raw)))] = raw


def _cut(rng: random.Random, data: bytearray) -> None:
    at = _place(rng, data)
    del data[at : at + rng.choice((1, 2, 8, 100, 5000))]


def _truncate(rng: random.Random, data: bytearray) -> None:
    if rng.random() < 0.4:
        del data[_place(rng, data) :]


def _splice(rng: random.Random, data: bytearray) -> None:
    """A piece of the data, copied to another place in it."""
    start, at = _place(rng, data), _place(rng, data)
    piece = bytes(data[start : start + rng.choice((1, 4, 16, 200, 3000))])
    data[at : at + rng.choice((0, len(piece)))] = piece


def _repeat(rng: random.Random, data: bytearray) -> None:
    start = _place(rng, data)
    piece = bytes(data[start : start + rng.choice((1, 2, 3, 12, 60))])
    data[start:start] = piece * rng.choice((2, 10, 100, 1500, 9000))


_BYTE_LEVEL: tuple[Mutator, ...] = (
    _flip, _set, _number, _insert, _bad_text, _cut, _truncate, _splice, _repeat,
)  # fmt: skip
