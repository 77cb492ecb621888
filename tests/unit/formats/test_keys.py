from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ds4chat.formats.gguf import GgufFile
from ds4chat.formats.keys import KeyReader
from ds4chat.formats.values import ARRAY, STRING
from tests.gguf_sketch import BOOL, F32, F64, I8, I32, I64, U16, U32, U64, Array, Sketch

KEYS: dict[str, tuple[int, Any]] = {
    "a.i8": (I8, 5),
    "a.u16": (U16, 5),
    "a.u32": (U32, 5),
    "a.i64": (I64, 5),
    "a.u64": (U64, 5),
    "a.minus": (I32, -1),
    "a.flag": (BOOL, True),
    "a.f32": (F32, 0.5),
    "a.f64": (F64, 0.25),
    "a.nan": (F32, float("nan")),
    "a.inf": (F64, float("inf")),
    "a.zero": (F32, 0.0),
    "a.word": (STRING, "w"),
    "a.list": (ARRAY, Array(I32, [1, 2, 3])),
    "a.same": (ARRAY, Array(F32, [2.0, 2.0, 9.0])),
    "a.names": (ARRAY, Array(STRING, ["1"])),
    "a.none": (ARRAY, Array(I32, [])),
}


@pytest.fixture
def keys(tmp_path: Path) -> KeyReader:
    return KeyReader(GgufFile.open(Sketch(keys=KEYS).write(tmp_path / "k.gguf")).metadata)


@pytest.mark.parametrize("key", ["a.i8", "a.u16", "a.u32", "a.i64", "a.u64"])
def test_any_width_is_a_whole_number(keys: KeyReader, key: str) -> None:
    assert keys.integer(key) == 5
    assert keys.problems == []


def test_numbers_and_defaults(keys: KeyReader) -> None:
    assert keys.number("a.f32") == 0.5
    assert keys.number("a.f64") == 0.25
    assert keys.number("a.u16") == 5.0
    assert keys.number("absent", default=3.0) == 3.0
    assert keys.integer("absent", default=3) == 3
    assert keys.text("absent", "t") == "t"
    assert keys.text("a.word") == "w"
    assert keys.integers("a.list") == (1, 2, 3)
    assert keys.integers("a.list", count=2) == (1, 2)
    assert keys.uniform("a.same", count=2, default=None) == 2.0
    assert keys.uniform("a.f32", count=9, default=None) == 0.5
    assert keys.uniform("absent", count=9, default=4.0) == 4.0
    keys.flag("a.flag", wanted=True)
    assert keys.problems == []


PROBLEMS: dict[str, tuple[Callable[[KeyReader], Any], str]] = {
    "missing": (lambda k: k.integer("a.wordy"), "a.wordy is missing"),
    "near": (lambda k: k.integer("a.wordd"), "the file has a.word"),
    "range": (lambda k: k.integer("a.u32", most=4), "is 5; 1 to 4 wanted"),
    "fixed": (lambda k: k.integer("a.u32", least=1, most=1), "is 5; 1 wanted"),
    "negative": (lambda k: k.integer("a.minus"), "is -1"),
    "bool is no number": (lambda k: k.integer("a.flag"), "stored as BOOL"),
    "float is no whole number": (lambda k: k.integer("a.f32"), "stored as FLOAT32"),
    "bool is no float": (lambda k: k.number("a.flag"), "stored as BOOL"),
    "text is no float": (lambda k: k.number("a.word"), "stored as STRING"),
    "nan": (lambda k: k.number("a.nan"), "a positive number wanted"),
    "inf": (lambda k: k.number("a.inf"), "a positive number wanted"),
    "zero": (lambda k: k.number("a.zero"), "a positive number wanted"),
    "flag": (lambda k: k.flag("a.flag", wanted=False), "is true; false wanted"),
    "flag type": (lambda k: k.flag("a.u32", wanted=True), "stored as UINT32; true wanted"),
    "flag missing": (lambda k: k.flag("a.x", wanted=True), "a.x is missing"),
    "short": (lambda k: k.integers("a.list", count=4), "3 entries; at least 4 wanted"),
    "empty": (lambda k: k.integers("a.none"), "0 entries"),
    "array type": (lambda k: k.integers("a.names"), "array of 1 STRING"),
    "float array": (lambda k: k.integers("a.same"), "array of 3 FLOAT32"),
    "scalar": (lambda k: k.integers("a.u32"), "stored as UINT32"),
    "uneven": (lambda k: k.uniform("a.same", count=3, default=None), "layer to layer (2, 9)"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_problem_is_one_line_and_gives_none(keys: KeyReader, case: str) -> None:
    read, words = PROBLEMS[case]
    assert read(keys) is None
    assert len(keys.problems) == 1
    assert words in keys.problems[0]
