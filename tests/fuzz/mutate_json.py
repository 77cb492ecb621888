"""JSON documents with one thing wrong, which `json.dumps` itself would never write."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from tests.fuzz.mutate import FLOATS, INTS, hostile_text


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that stands in the document as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """An object whose keys may repeat."""

    items: tuple[tuple[str, Any], ...]


def write(value: Any, *, ascii_only: bool = False, space: str = "") -> str:
    """The document's text."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        value = Pairs(tuple(value.items()))
    if isinstance(value, Pairs):
        inner = (
            json.dumps(key, ensure_ascii=ascii_only)
            + ":"
            + space
            + write(item, ascii_only=ascii_only)
            for key, item in value.items
        )
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write(item, ascii_only=ascii_only) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def hostile(rng: random.Random) -> Any:
    """A value that the reader did not expect."""
    return rng.choice(_KINDS)(rng)


def mutated(rng: random.Random, value: Any) -> Any:
    """A copy with one to three nodes replaced, added, doubled or taken away."""
    for _ in range(rng.randint(1, 3)):
        value = _change(rng, value)
    return value


def _change(rng: random.Random, value: Any) -> Any:
    """Go down a random path and change what is at its end."""
    if isinstance(value, Pairs):
        value = dict(value.items)
    if isinstance(value, dict) and value and rng.random() < 0.85:
        return _change_object(rng, value)
    if isinstance(value, list) and value and rng.random() < 0.8:
        return _change_list(rng, value)
    return hostile(rng)


def _change_object(rng: random.Random, value: dict[str, Any]) -> Any:
    key = rng.choice(list(value))
    how = rng.random()
    if how < 0.12:
        return {k: v for k, v in value.items() if k != key}
    if how < 0.2:
        return Pairs((*value.items(), (key, _change(rng, value[key]))))
    if how < 0.28:
        return {**value, hostile_text(rng): hostile(rng)}
    if how < 0.34:
        return {**value, key: value[rng.choice(list(value))]}
    return {**value, key: _change(rng, value[key])}


def _change_list(rng: random.Random, value: list[Any]) -> Any:
    at = rng.randrange(len(value))
    how = rng.random()
    if how < 0.15:
        return value[:at] + value[at + 1 :]
    if how < 0.3:
        return value[:at] + [value[at]] * rng.choice((2, 3, 100, 3000)) + value[at:]
    return [*value[:at], _change(rng, value[at]), *value[at + 1 :]]


def _deep(rng: random.Random) -> Raw:
    """Brackets in brackets, often about as many as an interpreter's stack has room for."""
    depth = rng.choice((10, 100, 5000, 60_000, *(rng.randint(150, 1100) for _ in range(6))))
    start, end = rng.choice((("[", "]"), ('{"a":', "}"), ('[{"type":', "}]")))
    return Raw(start * depth + "1" + end * depth)


def _wide(rng: random.Random) -> Raw:
    piece = rng.choice(("[]", "{}", "0", '""', "null", "1.5"))
    return Raw("[" + ",".join([piece] * rng.choice((10, 1000, 60_000))) + "]")


def _digits(rng: random.Random) -> Raw:
    sign = rng.choice(("", "-"))
    return Raw(sign + "9" * rng.choice((19, 20, 40, 309, 400, 4300, 4301, 30_000)))


def _odd_number(rng: random.Random) -> Raw:
    return Raw(
        rng.choice(("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "-0", "0.1e1"))
    )


def _text(rng: random.Random) -> Any:
    if rng.random() < 0.3:
        return Raw(rng.choice(('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\t"', '"')))
    return hostile_text(rng)


def _int(rng: random.Random) -> int:
    return rng.choice(INTS) * rng.choice((1, -1))


def _float(rng: random.Random) -> float:
    return rng.choice(FLOATS)


def _plain(rng: random.Random) -> Any:
    return rng.choice((None, True, False, [], {}, "", [[]], {"": None}, 1, -1, 0.5))


_KINDS = (_deep, _wide, _digits, _odd_number, _text, _int, _float, _plain, _plain)
