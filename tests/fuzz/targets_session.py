"""Session folders: transcripts, snapshot manifests and data files, safetensors files."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ds4chat.engine.engine import Engine
from ds4chat.engine.snapshot_chain import data_file
from ds4chat.engine.snapshot_files import DiskFiles, clean, remove, scan
from ds4chat.engine.snapshot_pack import unpack
from ds4chat.engine.snapshots import restore, take, write
from ds4chat.errors import Ds4Error
from ds4chat.formats import safetensors
from ds4chat.protocol.types import Source, ThinkMode
from ds4chat.store import snapshots
from ds4chat.store.export import FORMATS, export
from ds4chat.store.export.look import Look
from ds4chat.store.library import Library
from ds4chat.store.tree import Tree
from tests.engines import SMALL, open_pair, random_ids
from tests.fuzz import mutate_json
from tests.fuzz.case import Files, Odd, Target
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

Rows = list[Any]


# Transcripts.


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
    head = mutate_json.write(row).encode("utf-8", "surrogatepass")[:-1]
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
    n = rng.choice((50, 3000))
    make = rng.choice((_asked, _chained, _forked, _noticed, _renamed, _replied))
    head = [
        {"kind": "fork", "branch": "c", "base": "main", "leaf": 1, "start": 1, "why": "compact"}
    ]
    flood: Rows = head if rng.random() < 0.5 else []
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
    library.strip("s")
    library.rename("s", "t")
    library.delete("t")
    library.undelete("t")
    assert (folder / _OTHER).read_bytes() == transcript(), "another session was changed"
    return f"read, {'some' if session.notices else 'no'} problems"


def _look_at(tree: Tree) -> None:
    for branch in list(tree.branches)[:20]:
        for turn in tree.path(branch)[:200]:
            turn.check(), turn.usage, turn.reason, list(turn.spans())
        _or_refused(lambda branch=branch: tree.messages(branch))  # type: ignore[misc]
    tree.taken_back()
    tree.children(None)
    snapshots.candidates(tree)
    _or_refused(lambda: tree.messages(n_vocab=129_280))
    for kind in FORMATS:
        _or_refused(lambda kind=kind: export(tree, "s", kind, _LOOK))  # type: ignore[misc]


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


# Snapshots.


class _Saved:
    """An engine, and the files of two snapshots that it made, one continuing the other."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="ds4chat-fuzz-") as home:
            self.engine: Engine = open_pair(Path(home) / "pair", seed=31, **SMALL)
            folder = Path(home) / "snapshots"
            session = self.engine.session()
            session.sync(random_ids(self.engine, 140))
            for name in ("old", "new"):
                write(take(self.engine, session, folder), name, DiskFiles())
                session.step(session.choose())
            self.files = {path.name: path.read_bytes() for path in folder.iterdir()}


@cache
def saved() -> _Saved:
    """Made once in a process."""
    return _Saved()


def sign(body: dict[str, Any]) -> bytes:
    """A manifest with the hash of its content."""
    body = {key: value for key, value in body.items() if key != "sha256"}
    text = json.dumps(body, indent=1, sort_keys=True)
    whole = {**body, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return json.dumps(whole, indent=1, sort_keys=True).encode()


def _make_snapshots(rng: random.Random) -> Files:
    place = f"{ROOT}/s/snapshots/"
    files: dict[str, bytes | Odd] = dict(saved().files)
    how = rng.random()
    if how < 0.45:
        _change_manifest(rng, files)
    elif how < 0.9:
        _change_data(rng, files)
    if rng.random() < 0.15:
        name = rng.choice(list(files))
        files[name] = rng.choice((*Odd, b"", damage(rng, saved().files.get(name, b""))))
    if rng.random() < 0.1:
        files[rng.choice(("x.data.tmp", "con.json", "a b.json", "new.json.tmp", "0.json"))] = (
            b"{}"
        )
    return {place + name: content for name, content in files.items()}


def _change_manifest(rng: random.Random, files: dict[str, bytes | Odd]) -> None:
    name = rng.choice(("new.json", "old.json"))
    body = json.loads(saved().files[name])
    changed = mutate_json.mutated(rng, body)
    text = mutate_json.write(changed)
    try:
        reread = json.loads(text)
        raw = sign(reread) if isinstance(reread, dict) else text.encode()
    except (ValueError, RecursionError):
        raw = text.encode("utf-8", "surrogatepass")
    files[name] = raw


def _change_data(rng: random.Random, files: dict[str, bytes | Odd]) -> None:
    """Another data file, with a manifest that says it belongs there."""
    name = rng.choice(("new.json", "old.json"))
    body = json.loads(saved().files[name])
    at = rng.randrange(len(body["links"]))
    raw = changed_safetensors(rng, saved().files[body["links"][at]["file"]])
    sha = hashlib.sha256(raw).hexdigest()
    body["links"][at] |= {"file": data_file(sha), "sha256": sha, "n_bytes": len(raw)}
    files[data_file(sha)] = raw
    files[name] = sign(body)


def _run_snapshots(folder: Path) -> str:
    session, place = folder / ROOT / "s", folder / ROOT / "s" / "snapshots"
    engine = saved().engine
    snapshots.orphans(session, ["new"])
    snapshots.everything(session)
    found = scan(place)
    for error in found.problems.values():
        assert error.message.isprintable(), error.message
    labels = [_restored(engine, place, name) for name in found.manifests]
    clean(place, DiskFiles())
    remove(place, list(found.manifests)[:1], DiskFiles())
    return " ".join(labels)


def _restored(engine: Engine, place: Path, name: str) -> str:
    try:
        restore(engine, place, name).session.close()
    except Ds4Error as error:
        assert error.message.isprintable(), error.message
        return "refused"
    return "restored"


# Safetensors.


def changed_safetensors(rng: random.Random, raw: bytes) -> bytes:
    """A file with another header, other data, or damaged bytes."""
    length = int.from_bytes(raw[:8], "little")
    header, data = raw[8 : 8 + length], raw[8 + length :]
    how = rng.random()
    if how < 0.6:
        table = json.loads(header)
        for _ in range(rng.choice((1, 1, 2))):
            table = rng.choice(_TABLES)(rng, table)
        header = mutate_json.write(table).encode("utf-8", "surrogatepass")
    elif how < 0.8:
        data = damage(rng, data)
    else:
        return damage(rng, raw)
    n = len(header) if rng.random() < 0.95 else hostile_int(rng)
    return n.to_bytes(8, "little") + header + data


def _any_node(rng: random.Random, table: Any) -> Any:
    return mutate_json.mutated(rng, table)


def _shape(rng: random.Random, table: Any) -> Any:
    """Another shape of the same size, if there is one, or of none."""
    names = (
        [n for n, e in table.items() if isinstance(e, dict) and "shape" in e]
        if isinstance(table, dict)
        else []
    )
    if not names:
        return table
    name = rng.choice(names)
    entry = dict(table[name])
    shape = entry["shape"] if isinstance(entry["shape"], list) else [1]
    entry["shape"] = rng.choice(
        (
            shape[::-1],
            [*shape, 1],
            [1] * 40 + shape,
            [0, (1 << 63) - 1],
            [0, 1 << 62, 1 << 62],
            [],
            [0],
        )
    )
    if rng.random() < 0.5 and isinstance(entry.get("data_offsets"), list):
        entry["data_offsets"] = entry["data_offsets"][:1] * 2
    entry["dtype"] = rng.choice((entry.get("dtype"), "U8", "BF16", "I32", "F64", "F16"))
    return {**table, name: entry}


def _empties(rng: random.Random, table: Any) -> Any:
    """Many tensors of nothing, some of one name."""
    n = rng.choice((1, 1, 5, 5, 300, 8000))
    empty = {"dtype": "F32", "shape": [0, (1 << rng.randrange(64)) - 1], "data_offsets": [0, 0]}
    names = [f"e{i}" for i in range(n)] + [f"e{n - 1}"] * rng.randrange(2)
    items = tuple(table.items()) if isinstance(table, dict) else ()
    return mutate_json.Pairs(items + tuple((name, empty) for name in names))


def _plain_table(table: Any) -> Any:
    return dict(table.items) if isinstance(table, mutate_json.Pairs) else table


_TABLES: tuple[Callable[[random.Random, Any], Any], ...] = (
    lambda rng, table: _any_node(rng, _plain_table(table)),
    lambda rng, table: _shape(rng, _plain_table(table)),
    lambda rng, table: _empties(rng, _plain_table(table)),
)


@cache
def small_file() -> bytes:
    """Tensors of several types, packed and plain."""
    names = [name for name in saved().files if name.endswith(".safetensors")]
    whole = safetensors.decode(saved().files[min(names)], "seed")
    few = dict(list(whole.tensors.items())[:6])
    return b"".join(safetensors.encode(few, {"ds4chat": "snapshot"}))


def _make_safetensors(rng: random.Random) -> Files:
    return {"x.safetensors": changed_safetensors(rng, small_file())}


def _run_safetensors(folder: Path) -> str:
    raw = (folder / "x.safetensors").read_bytes()
    file = safetensors.decode(raw, "x.safetensors")
    for name, tensor in list(file.tensors.items())[:200]:
        assert tensor.data.nbytes <= len(raw)
        unpack({name: tensor}, name, tensor.data.dtype)
    return "decoded"


def _prepare_transcripts() -> None:
    transcript()
    sample()


def _prepare_snapshots() -> None:
    small_file()


TARGETS = (
    Target(
        name="transcripts", make=_make_transcript, run=_run_transcript,
        prepare=_prepare_transcripts, may_write=ROOT,
    ),
    Target(
        name="snapshots", make=_make_snapshots, run=_run_snapshots,
        prepare=_prepare_snapshots, may_write=f"{ROOT}/s",
    ),
    Target(
        name="safetensors", make=_make_safetensors, run=_run_safetensors,
        prepare=_prepare_snapshots,
    ),
)  # fmt: skip
