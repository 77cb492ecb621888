"""Session folders: the transcript, the lock, and what stands beside them."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ds4chat.errors import Ds4Error
from ds4chat.protocol.types import Source, ThinkMode
from ds4chat.store import snapshots
from ds4chat.store.export import FORMATS, export
from ds4chat.store.export.look import Look
from ds4chat.store.library import Library
from ds4chat.store.tree import Tree
from tests.fuzz import mutate_json
from tests.fuzz.case import Files, Odd, Target
from tests.fuzz.guard import kind_of_words
from tests.fuzz.mutate import damage, hostile_int, hostile_text
from tests.unit.store.build import finished, say, tokens

ROOT = "sessions"
_TRANSCRIPT = f"{ROOT}/s/transcript.jsonl"
_OTHER = f"{ROOT}/other/transcript.jsonl"
_LOOK = Look(
    sources=dict.fromkeys(Source, "#ffffff"),
    background="#000000",
    foreground="#ffffff",
    dim="#888888",
)

_LONG_BYTES = 300_000  # read three times only: the bar is for reading one file, not seven

Rows = list[Any]


@cache
def transcript() -> bytes:
    """A conversation with forks, an undone turn, a compacted branch and a snapshot."""
    with tempfile.TemporaryDirectory() as name:
        library = Library(Path(name), clock=lambda: "2026-07-31T12:00:00.000Z")
        session = library.create("seed")
        session.set_system("Answer briefly.")
        for i in range(5):
            say(session, f"question {i}", "an answer of six words, no more")
        session.fork(2, "other way")
        say(session, "and now?", "größe 🚀")
        session.undo()
        say(session, "otherwise")
        session.compact(2)
        say(session, "the last one")
        session.goto("main")
        session.close()
        return (session.folder / "transcript.jsonl").read_bytes()


@cache
def sample() -> bytes:
    """The session that ships with the program: a real stream with provenance."""
    return Path("sessions/samples/v1-scripted/transcript.jsonl").read_bytes()


def signed(row: Any) -> bytes:
    """A transcript's line with a sum that fits."""
    if isinstance(row, dict):
        row = {key: value for key, value in row.items() if key != "sum"}
    try:
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    except TypeError:  # it holds what only `mutate_json` can write
        text = mutate_json.write(row)
    head = text.encode("utf-8", "surrogatepass")[:-1]
    return head + b',"sum":"%08x"}' % zlib.crc32(head)


def _make_transcript(rng: random.Random) -> Files:
    whole = sample() if rng.random() < 0.3 else transcript()
    rows: Rows = [json.loads(line) for line in whole.splitlines()]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        rows = rng.choice(_ROWS)(rng, rows)
    lines = [row if isinstance(row, bytes) else signed(row) for row in rows]
    raw = b"\n".join(lines) + b"\n" * (rng.random() < 0.9)
    if rng.random() < 0.2:
        raw = damage(rng, raw)
    files: dict[str, bytes | Odd] = {_TRANSCRIPT: raw, _OTHER: transcript()}
    if rng.random() < 0.05:
        files[f"{ROOT}/s/lock"] = rng.choice((*Odd, _owner(rng), b"[" * 4000, b"\xff"))
    if rng.random() < 0.05:
        files[f"{ROOT}/s/snapshots"] = rng.choice(tuple(Odd))
    if rng.random() < 0.01:
        files[_TRANSCRIPT] = rng.choice(tuple(Odd))
    return files


def _owner(rng: random.Random) -> bytes:
    words = {"pid": 1, "host": "here", "started": "now"}
    return mutate_json.write(mutate_json.mutated(rng, words)).encode("utf-8", "surrogatepass")


def _change_row(rng: random.Random, rows: Rows) -> Rows:
    at = rng.randrange(len(rows))
    return [*rows[:at], mutate_json.mutated(rng, rows[at]), *rows[at + 1 :]]


def _change_value(rng: random.Random, rows: Rows) -> Rows:
    """A value of the right type under a known name: what only the tree can refuse."""
    at = rng.randrange(len(rows))
    row = rows[at]
    if not isinstance(row, dict):
        return rows
    key = rng.choice(list(row))
    new: Any = row[key]
    if isinstance(new, bool) or new is None:
        new = rng.choice((True, None, 1, 3))
    elif isinstance(new, int):
        new = rng.choice((hostile_int(rng, -(1 << 64)), rng.randrange(9)))
    elif isinstance(new, str):
        new = rng.choice((hostile_text(rng), "main", "other way"))
    return [*rows[:at], {**row, key: new}, *rows[at + 1 :]]


def _drop_rows(rng: random.Random, rows: Rows) -> Rows:
    at = rng.randrange(len(rows))
    return rows[:at] + rows[at + rng.choice((1, 1, 4, 20)) :] or rows


def _double_row(rng: random.Random, rows: Rows) -> Rows:
    at, to = rng.randrange(len(rows)), rng.randrange(len(rows))
    return rows[:to] + [rows[at]] * rng.choice((1, 2, 300)) + rows[to:]


def _swap_rows(rng: random.Random, rows: Rows) -> Rows:
    rows = list(rows)
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    rows[i], rows[j] = rows[j], rows[i]
    return rows


def _tear(rng: random.Random, rows: Rows) -> Rows:
    at = rng.randrange(len(rows))
    row = rows[at]
    line = row if isinstance(row, bytes) else signed(row)
    return [*rows[:at], damage(rng, line) or b" ", *rows[at + 1 :]]


def _flood(rng: random.Random, rows: Rows) -> Rows:
    """Thousands of turns, branches or odd records: what costs more than it looks."""
    n = rng.choice((5, 50, 50, 50, 50, 50, 50, 50, 3000, 6000))
    make = rng.choice((_asked, _chained, _forked, _noticed, _renamed, _replied, _ended))
    head = [
        {"kind": "fork", "branch": "c", "base": "main", "leaf": 1, "start": 1, "why": "compact"}
    ]
    flood: Rows = head if rng.random() < 0.5 else []
    if make is _ended:
        flood.append(
            {
                "kind": "reply",
                "turn_id": 1,
                "text": "x" * 9,
                "ids": [7] * rng.choice((9, 99_000)),
            }
        )
    flood += [make(i) for i in range(n)]
    for number, row in enumerate(flood):
        row |= {"n": len(rows) + number + 1, "at": "2026"}
    return rows + flood


def _asked(i: int) -> dict[str, Any]:
    return {"kind": "asked", "turn_id": 100 + i, "parent": 1, "branch": "c", "text": "q"}


def _chained(i: int) -> dict[str, Any]:
    return {
        "kind": "asked",
        "turn_id": 100 + i,
        "parent": 99 + i if i else 1,
        "branch": "c",
        "text": "q",
    }


def _forked(i: int) -> dict[str, Any]:
    return {"kind": "fork", "branch": f"b{i}", "base": "main", "leaf": 1 + i % 5}


def _noticed(i: int) -> dict[str, Any]:
    return {
        "kind": "notice",
        "turn_id": 500 + i,
        "level": "info",
        "message": "\x1b[2J",
        "hint": "",
    }


def _renamed(i: int) -> dict[str, Any]:
    return {"kind": "branch_name", "branch": f"m{i - 1}" if i else "main", "name": f"m{i}"}


def _replied(i: int) -> dict[str, Any]:
    return {"kind": "reply", "turn_id": i, "text": "x" * 20, "ids": [i] * 20}


def _ended(i: int) -> dict[str, Any]:
    empty: dict[str, Any] = {"usage": {}, "ids": []}
    return {"kind": "finished", "turn_id": 1, "reason": "stop", "check": f"{i:08x}"} | empty


_ROWS: tuple[Callable[[random.Random, Rows], Rows], ...] = (
    _change_row, _change_row, _change_value, _change_value, _drop_rows, _double_row, _swap_rows,
    _tear, _flood,
)  # fmt: skip


def _run_transcript(folder: Path) -> str:
    library = Library(folder / ROOT, clock=lambda: "2026-08-01T12:00:00.000Z")
    for summary in library.summaries():
        shown = (summary.first, summary.last, summary.model, summary.trouble)
        assert all(text.isprintable() for text in shown), shown
    assert len(list(itertools.islice(library.search("question"), 50))) <= 50
    session = library.read("s")
    assert all(notice.isprintable() for notice in session.notices), session.notices[:5]
    _look_at(session.tree)
    _go_on(library)
    if (folder / _TRANSCRIPT).stat().st_size < _LONG_BYTES:
        library.strip("s")
        library.rename("s", "t")
        library.delete("t")
        library.undelete("t")
    assert (folder / _OTHER).read_bytes() == transcript(), "another session was changed"
    return f"read; {kind_of_words(session.notices[0]) if session.notices else 'whole'}"


def _look_at(tree: Tree) -> None:
    for branch in list(tree.branches)[:20]:
        for turn in tree.path(branch)[:200]:
            turn.check(), turn.usage, turn.reason, list(turn.spans())
        _or_refused(lambda branch=branch: tree.messages(branch))  # type: ignore[misc]
    tree.taken_back()
    tree.children(None)
    snapshots.candidates(tree)
    _or_refused(lambda: tree.messages(n_vocab=129_280))
    kind = FORMATS[len(tree.turns) % len(FORMATS)]  # one: they are most of the time
    _or_refused(lambda: export(tree, "s", kind, _LOOK))


def _or_refused(work: Callable[[], object]) -> None:
    try:
        work()
    except Ds4Error as error:
        assert error.message.isprintable(), error.message[:200]


def _go_on(library: Library) -> None:
    """What is said from here on is kept and read back, whatever stands before it."""
    opened = library.open("s")
    if opened.is_read_only:
        opened.close()
        return
    try:
        turn_id = opened.ask("one more", ThinkMode.OFF).id
        opened.report(tokens(turn_id, "a new answer"))
        opened.report(finished(turn_id))
        opened.fork(turn_id)
    finally:
        opened.close()
    again = library.read("s").tree.turns[turn_id]
    assert again.answer_text == "anewanswer", again.answer_text
    assert not again.damage, again.damage


def _prepare() -> None:
    transcript()
    sample()


TARGETS = (
    Target(
        name="transcripts", make=_make_transcript, run=_run_transcript, prepare=_prepare,
        may_write=ROOT,
    ),
)  # fmt: skip
