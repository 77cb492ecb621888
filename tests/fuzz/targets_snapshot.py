"""Snapshots of sessions: manifests, data files, and safetensors files by themselves."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
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
from ds4chat.store import snapshots
from tests.engines import SMALL, open_pair, random_ids
from tests.fuzz import mutate_json
from tests.fuzz.case import Files, Odd, Target
from tests.fuzz.guard import kind_of
from tests.fuzz.mutate import damage, hostile_int

_SESSION = "sessions/s"


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
    place = f"{_SESSION}/snapshots/"
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
    session = folder / _SESSION
    place = session / "snapshots"
    engine = saved().engine
    snapshots.orphans(session, ["new"])
    snapshots.everything(session)
    found = scan(place)
    for error in found.problems.values():
        assert error.message.isprintable(), error.message
    labels = [_restored(engine, place, name) for name in found.manifests]
    clean(place, DiskFiles())
    remove(place, list(found.manifests)[:1], DiskFiles())
    labels += [kind_of(error, place) for error in found.problems.values()]
    return next((label for label in labels if label != "restored"), "restored")


def _restored(engine: Engine, place: Path, name: str) -> str:
    try:
        restore(engine, place, name).session.close()
    except Ds4Error as error:
        assert error.message.isprintable(), error.message
        return kind_of(error, place)
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


def _prepare() -> None:
    small_file()


TARGETS = (
    Target(
        name="snapshots", make=_make_snapshots, run=_run_snapshots, prepare=_prepare,
        may_write=_SESSION,
    ),
    Target(
        name="safetensors", make=_make_safetensors, run=_run_safetensors, prepare=_prepare,
    ),
)  # fmt: skip
