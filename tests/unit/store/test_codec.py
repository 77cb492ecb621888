from __future__ import annotations

import json
import math
import zlib
from dataclasses import replace
from typing import Any

import pytest

from ds4chat.demo.script import default_info
from ds4chat.protocol.types import Sampling, ThinkMode
from ds4chat.store import codec
from ds4chat.store.codec import BadLineError
from ds4chat.store.records import Asked, Entry, Header, OptionsSet, SnapshotSaved, Unknown
from tests.unit.store import build


def entry(record: Any) -> Entry:
    return Entry(n=1, at="2026-07-31T12:00:00.000Z", record=record)


def signed(fields: dict[str, Any]) -> bytes:
    """A sound line of any content."""
    head = json.dumps(fields).encode()[:-1]
    return head + b',"sum":"%08x"}' % zlib.crc32(head)


ASKED = {"kind": "asked", "n": 1, "at": "", "turn_id": 1, "parent": None, "text": "hi"}


@pytest.mark.parametrize(
    "record",
    [
        Header(id="x"),
        OptionsSet(model=default_info(), sampling=Sampling(temperature=0.5), stop=("a", "b")),
        Asked(
            turn_id=3, parent=1, branch="b", think=ThinkMode.MAX, text="line\nline\u2028 \x00 é"
        ),
        Asked(turn_id=1, parent=None, text="lone \ud800 surrogate"),
        SnapshotSaved(name="a", n_tokens=3, token_hash="ff", turn_id=None),
        build.tokens(1, "one two"),
        build.finished(1),
    ],
)
def test_a_record_comes_back(record: Any) -> None:
    line = codec.encode(entry(record))
    assert line.count(b"\n") == 1
    assert codec.decode(line[:-1]) == entry(record)


def test_numbers_that_json_lacks_come_back() -> None:
    span = build.span("x")
    odd = replace(
        span, token=replace(span.token, margin=math.inf, confidence=math.nan, logit=-math.inf)
    )
    record = replace(build.tokens(1, ""), spans=(odd,))
    line = codec.encode(entry(record))
    json.loads(line, parse_constant=pytest.fail)
    found = codec.decode(line[:-1]).record.spans[0].token  # type: ignore[union-attr]
    assert found.confidence is not None
    assert math.isnan(found.confidence)
    assert (found.margin, found.logit) == (math.inf, -math.inf)


def test_text_is_readable_in_the_file() -> None:
    assert (
        "Größe 世界"
        in codec.encode(entry(Asked(turn_id=1, parent=None, text="Größe 世界"))).decode()
    )


def test_an_unknown_kind_is_kept_verbatim() -> None:
    line = signed({"kind": "weather", "n": 4, "at": "x", "rain": [1, {"a": 2}]})
    found = codec.decode(line)
    assert found.record == Unknown(kind="weather", raw=line.decode())
    assert codec.encode(found) == line + b"\n"


def test_unknown_fields_are_passed_over() -> None:
    found = codec.decode(signed(ASKED | {"mood": "good"}))
    assert found.record == Asked(turn_id=1, parent=None, text="hi")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"turn_id": "1"}, "wanted int"),
        ({"turn_id": True}, "wanted int"),
        ({"parent": 1.5}, "wanted int"),
        ({"think": "deeply"}, "deeply"),
        ({"text": None}, "wanted str"),
        ({"n": None}, "wanted int"),
        ({"kind": 5}, "wanted text"),
    ],
)
def test_wrong_types_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadLineError, match=words):
        codec.decode(signed(ASKED | change))


def test_a_missing_field_is_named() -> None:
    fields = {name: value for name, value in ASKED.items() if name != "text"}
    with pytest.raises(BadLineError, match="text"):
        codec.decode(signed(fields))


@pytest.mark.parametrize(
    "spans", [[["a", 1]], [5], "x", [["a", 1, "plain", 0, 0, None, "big"]]]
)
def test_a_broken_token_row_is_refused(spans: Any) -> None:
    fields = {"kind": "tokens", "n": 1, "at": "", "turn_id": 1, "channel": "answer"}
    with pytest.raises(BadLineError):
        codec.decode(signed(fields | {"spans": spans}))


def test_every_flipped_bit_is_found() -> None:
    line = codec.encode(entry(Asked(turn_id=1, parent=None, text="hello")))[:-1]
    for place in range(len(line) * 8):
        flipped = bytearray(line)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(BadLineError):
            codec.decode(bytes(flipped))


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[" * 100_000, b'{"a":1}', b"\xff" * 40, b"null", b"1" * 5000]
)
def test_garbage_is_refused(line: bytes) -> None:
    for each in (line, line + b',"sum":"%08x"}' % zlib.crc32(line)):
        with pytest.raises(BadLineError):
            codec.decode(each)


def test_a_line_that_no_reader_takes_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_LINE_BYTES", 200)
    with pytest.raises(ValueError, match="200"):
        codec.encode(entry(Asked(turn_id=1, parent=None, text="x" * 200)))
