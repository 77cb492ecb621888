from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.protocol.types import ThinkMode
from ds4chat.store import transcripts
from ds4chat.store.library import Library
from ds4chat.store.transcripts import Reading
from tests.unit.store import build

WHERE = Path("transcript.jsonl")


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    """Three short turns, the middle one with rounds and reasoning."""
    session = Library(tmp_path, clock=build.clock()).create("a")
    build.say(session, "first", "one")
    build.talk(session, "second", ThinkMode.HIGH)
    build.say(session, "third", "three")
    session.close()
    return (session.folder / transcripts.FILE_NAME).read_bytes()


def read(data: bytes) -> Reading:
    return transcripts.read_bytes(data, WHERE)


def flip(data: bytes, line: int) -> bytes:
    """Damage a line, counted from 1."""
    lines = data.split(b"\n")
    middle = len(lines[line - 1]) // 2
    lines[line - 1] = lines[line - 1][:middle] + b"\x00" + lines[line - 1][middle + 1 :]
    return b"\n".join(lines)


def line_of(data: bytes, kind: str, turn_id: int) -> int:
    for number, line in enumerate(data.splitlines(), start=1):
        fields = json.loads(line)
        if fields["kind"] == kind and fields.get("turn_id") == turn_id:
            return number
    raise AssertionError(kind)


def test_a_sound_transcript_has_no_problems(data: bytes) -> None:
    found = read(data)
    assert (found.problems, found.torn_bytes, found.good_bytes) == ([], 0, len(data))
    assert [turn.question for turn in found.tree.path()] == ["first", "second", "third"]
    assert found.tree.turns[2].answer_text == build.ANSWER
    assert found.next_n == len(data.splitlines()) + 1


def test_a_torn_last_line_is_dropped_with_a_notice(data: bytes) -> None:
    torn = read(data[:-40])
    assert torn.torn_bytes > 0
    assert torn.good_bytes + torn.torn_bytes == len(data) - 40
    assert "not written to its end" in torn.notices()[0]
    assert torn.tree.turns[2].finished is not None
    assert torn.tree.turns[3].finished is None


def test_a_last_line_without_its_line_feed_counts(data: bytes) -> None:
    found = read(data[:-1])
    assert found.is_unended
    assert found.torn_bytes == 0
    assert found.tree.turns[3].finished is not None


def test_a_damaged_answer_is_not_taken_for_whole(data: bytes) -> None:
    line = line_of(data, "tokens", 2)
    found = read(flip(data, line))
    assert [problem.line for problem in found.problems] == [line]
    assert "Line" in found.notices()[0]
    assert found.tree.turns[2].damage == f"line {line}"
    assert found.tree.turns[1].damage == found.tree.turns[3].damage == ""
    with pytest.raises(SessionFileError, match="turn 2 is damaged") as caught:
        found.tree.messages()
    assert "/fork 1" in caught.value.hint


def test_lost_figures_do_not_damage_the_text(data: bytes) -> None:
    found = read(flip(data, line_of(data, "round", 2)))
    assert len(found.problems) == 1
    assert found.tree.turns[2].damage == ""
    assert found.tree.turns[2].answer_text == build.ANSWER
    assert len(found.tree.messages()) == 6


def test_a_lost_question_stops_its_branch(data: bytes) -> None:
    found = read(flip(data, line_of(data, "asked", 2)))
    assert found.tree.turns[2].is_lost
    assert [turn.id for turn in found.tree.path()] == [2, 3]
    with pytest.raises(SessionFileError, match="turn 2"):
        found.tree.messages()
    assert found.tree.turns[1].answer_text == "one"


def test_a_turn_that_is_wholly_gone_leaves_the_next_one(data: bytes) -> None:
    lines = [
        line if json.loads(line).get("turn_id") != 2 else b"garbage"
        for line in data.splitlines()
    ]
    found = read(b"\n".join(lines) + b"\n")
    assert found.tree.turns[2].is_lost
    assert found.tree.turns[3].answer_text == "three"
    with pytest.raises(SessionFileError, match="turn 2"):
        found.tree.messages()


def test_a_line_that_is_gone_is_noticed(data: bytes) -> None:
    lines = data.split(b"\n")
    del lines[line_of(data, "tokens", 2) - 1]
    found = read(b"\n".join(lines))
    assert "1 lines before it are missing" in found.problems[0].message
    assert found.tree.turns[2].damage


def test_a_repeated_line_is_noticed(data: bytes) -> None:
    lines = data.split(b"\n")
    at = line_of(data, "tokens", 2)
    lines.insert(at, lines[at - 1])
    found = read(b"\n".join(lines))
    assert "was there before" in found.problems[0].message
    assert found.tree.turns[2].damage


def test_a_damaged_first_line_does_not_cost_the_rest(data: bytes) -> None:
    found = read(flip(data, 1))
    assert [problem.line for problem in found.problems] == [1]
    assert len(found.tree.messages()) == 6


def test_lines_changed_by_hand_are_named(data: bytes) -> None:
    found = read(data.replace(b'"text":"third"', b'"text":"3rd"'))
    assert "changed by hand" in found.problems[0].message


@pytest.mark.parametrize("extra", [{}, {"id": 5, "new": True}])
def test_a_newer_format_is_refused_politely(data: bytes, extra: dict[str, object]) -> None:
    fields = json.loads(data.split(b"\n", 1)[0]) | {"version": 2} | extra
    del fields["sum"]
    head = json.dumps(fields).encode()[:-1]
    line = head + b',"sum":"%08x"}\n' % zlib.crc32(head)
    with pytest.raises(
        SessionFileError, match="format 2; this program reads format 1"
    ) as caught:
        read(line + b"whatever\n")
    assert "update" in caught.value.hint


def test_a_newer_format_with_other_sums_is_refused_politely() -> None:
    with pytest.raises(SessionFileError, match="format 3"):
        read(b'{"kind":"session","version":3,"hash":"abc"}\nrest\n')


def test_a_flipped_version_is_damage_and_no_newer_format(data: bytes) -> None:
    found = read(data.replace(b'"version":1', b'"version":3', 1))
    assert len(found.tree.messages()) == 6


@pytest.mark.parametrize("data", [b"", b"\n\n", b"hello\n", b"\x00" * 5000, b"{}\n{}\n"])
def test_what_is_no_transcript_is_refused(data: bytes) -> None:
    with pytest.raises(SessionFileError, match="not a transcript"):
        read(data)


def test_an_endless_line_is_passed_over(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    first, rest = data.split(b"\n", 1)
    monkeypatch.setattr("ds4chat.store.codec.MAX_LINE_BYTES", 5000)
    huge = first + b"\n" + b"x" * 50_000 + b"\n" + rest
    found = read(huge)
    assert found.problems[0].line == 2
    assert found.good_bytes == len(huge)
    assert len(found.tree.messages()) == 6


def test_only_regular_files_are_read(tmp_path: Path, data: bytes) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_bytes(data)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("pipe", "link", "missing"):
        with pytest.raises(SessionFileError, match=name):
            transcripts.read(tmp_path / name)
    assert transcripts.read(tmp_path / "real").problems == []
