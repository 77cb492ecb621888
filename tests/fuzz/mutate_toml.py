"""TOML documents with something wrong, from plain tables."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from tests.fuzz.mutate import INTS, NASTY, damage, hostile_text

Tables = Mapping[str, Any]
"""Values by name; a mapping among them is a `[table]`."""


def mutated(rng: random.Random, tables: Tables) -> bytes:
    """The document with some lines changed, doubled, added or taken away."""
    lines = _lines(tables)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at = rng.randrange(len(lines) + 1)
        rng.choice(_CHANGES)(rng, lines, at)
    raw = "\n".join(lines).encode("utf-8", "surrogatepass")
    return damage(rng, raw) if rng.random() < 0.25 else raw


def _lines(tables: Tables) -> list[str]:
    lines = [f"{k} = {_value(v)}" for k, v in tables.items() if not isinstance(v, Mapping)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines += [f"[{name}]", *(f"{k} = {_value(v)}" for k, v in table.items())]
    return lines


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _replace(rng: random.Random, lines: list[str], at: int) -> None:
    if at < len(lines) and " = " in lines[at]:
        lines[at] = lines[at].split(" = ")[0] + " = " + hostile_value(rng)


def _rename(rng: random.Random, lines: list[str], at: int) -> None:
    if at < len(lines) and " = " in lines[at]:
        lines[at] = hostile_key(rng) + " = " + lines[at].split(" = ", 1)[1]


def _drop(rng: random.Random, lines: list[str], at: int) -> None:
    del lines[at : at + rng.choice((1, 1, 3))]


def _double(rng: random.Random, lines: list[str], at: int) -> None:
    lines[at:at] = lines[at : at + 1] * rng.choice((1, 2))


def _add(rng: random.Random, lines: list[str], at: int) -> None:
    lines.insert(at, f"{hostile_key(rng)} = {hostile_value(rng)}")


def _header(rng: random.Random, lines: list[str], at: int) -> None:
    key = hostile_key(rng)
    lines.insert(at, rng.choice((f"[{key}]", f"[[{key}]]", f"[{key}", f"[[{key}]")))


def _many(rng: random.Random, lines: list[str], at: int) -> None:
    """A long document: many names, or many tables."""
    n = rng.choice((100, 1500))
    row = rng.choice(("x{} = 1", "[t{}]", "[[t]]", "a{}.b.c = 1", "# {}", "[keys.k{}]"))
    lines[at:at] = [row.format(i) for i in range(n)]


def _comment(rng: random.Random, lines: list[str], at: int) -> None:
    lines.insert(at, rng.choice(("# ", "#\x01", "\ufeff", "\x00", "\r", "=", "'''", '"""')))


def hostile_key(rng: random.Random) -> str:
    """A name: quoted, dotted deeply, or no name at all."""
    how = rng.randrange(6)
    if how == 0:
        return json.dumps(hostile_text(rng))
    if how == 1:
        part = rng.choice(("a", "a", '"a b"', "'a'", "a "))
        return ".".join([part] * rng.choice((2, 8, 9, 30, 1000, 5000, 20_000)))
    if how == 2:
        return rng.choice(NASTY)
    return rng.choice(("temp", "theme", "keys", "screen", "sources", "is_dark", "x" * 3000))


def hostile_value(rng: random.Random) -> str:
    """A value that is wrong, or at the edge of what is right."""
    return rng.choice(_VALUES)(rng)


def _deep(rng: random.Random) -> str:
    depth = rng.choice((5, 100, 9000, *(rng.randint(60, 700) for _ in range(4))))
    start, end = rng.choice((("[", "]"), ("{a=", "}"), ("[{a=", "}]")))
    return start * depth + "1" + end * depth


def _number(rng: random.Random) -> str:
    digits = "9" * rng.choice((1, 19, 20, 309, 400, 4300, 4301, 20_000))
    kinds = (digits, f"-{digits}", f"{digits}.0", f"1e{digits}", f"0x{digits}", f"{digits}_0")
    return rng.choice((*kinds, "nan", "-inf", "inf", "1e400", "0b1", "0o7", "+0", "1_", ".5"))


def _quoted_number(rng: random.Random) -> str:
    return f'"{_number(rng)}"'


def _text(rng: random.Random) -> str:
    return json.dumps(hostile_text(rng), ensure_ascii=rng.random() < 0.5)


def _bad_text(rng: random.Random) -> str:
    return rng.choice(
        (r'"\ud800"', r'"\U00110000"', r'"\x41"', '"\\', "'\x01'", '"""\\\n', "'", '"a\nb"')
    )


def _long(rng: random.Random) -> str:
    return '"' + rng.choice(("a", "ü", "\\n", "\\u0041", "'")) * rng.choice((1000, 9000)) + '"'


def _time(rng: random.Random) -> str:
    return rng.choice(
        (
            "2026-02-30",
            "2026-01-01T25:00:00Z",
            "9999-12-31T23:59:59-23:59",
            "00:00:60",
            "1979-05-27",
        )
    )


def _int(rng: random.Random) -> str:
    return str(rng.choice(INTS) * rng.choice((1, -1)))


def _container(rng: random.Random) -> str:
    return rng.choice(
        ("[]", "{}", "[[]]", "{a.b=1, a.c=2}", "[1, 'a']", "[,]", "{a=1,}", "true")
    )


_VALUES = (
    _deep, _number, _quoted_number, _text, _bad_text, _long, _time, _int, _container,
)  # fmt: skip
_CHANGES = (_replace, _replace, _rename, _drop, _double, _add, _header, _many, _comment)
