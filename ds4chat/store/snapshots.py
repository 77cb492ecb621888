"""What a session knows of its KV snapshots: names and hashes. Their content is the engine's.

A snapshot `NAME` is the manifest `snapshots/NAME.json`, which lists the data files that it
needs; several may share one. The transcript is the authority: a snapshot that it does not name
is an orphan, and so is a data file that no named one lists.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from array import array
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.store.files import FileOps, is_real_dir, tree_bytes
from ds4chat.store.records import SnapshotSaved
from ds4chat.store.tree import Tree

FOLDER = "snapshots"
_MANIFEST, _TEMPORARY = ".json", ".tmp"
_DATA = re.compile(r"[0-9a-f]{32}\.safetensors")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
_MAX_MANIFEST = 1 << 20


class TokenHash:
    """SHA-256 over token ids as little-endian signed 32-bit integers, fed piece by piece."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def feed(self, ids: Sequence[int]) -> None:
        """Add ids. Raises OverflowError for one outside 32 bits."""
        numbers = array("i", ids)
        if sys.byteorder == "big":
            numbers.byteswap()
        self._digest.update(numbers.tobytes())

    def hex(self) -> str:
        """The hash so far."""
        return self._digest.hexdigest()


def token_hash(ids: Sequence[int]) -> str:
    """Hash of a whole list of token ids (see `TokenHash`)."""
    digest = TokenHash()
    digest.feed(ids)
    return digest.hex()


def candidates(tree: Tree) -> list[SnapshotSaved]:
    """Snapshots of turns on the current branch, newest first.

    Without token ids this is as near as one comes: the engine compares the hash.
    """
    on_path = {turn.id for turn in tree.path()}
    return [
        record
        for record in reversed(tree.snapshots.values())
        if record.turn_id is None or record.turn_id in on_path
    ]


def pick(records: Iterable[SnapshotSaved], ids: Sequence[int]) -> SnapshotSaved | None:
    """The newest snapshot whose tokens are a prefix of `ids`, or None.

    Args:
        records: oldest first, as `Tree.snapshots` holds them.
        ids: token ids of the conversation as the engine renders it.
    """
    ordered = list(records)
    fitting: list[int] = []
    digest, n_fed = TokenHash(), 0
    for place in sorted(range(len(ordered)), key=lambda i: ordered[i].n_tokens):
        record = ordered[place]
        if not 0 < record.n_tokens <= len(ids):
            continue
        digest.feed(ids[n_fed : record.n_tokens])
        n_fed = record.n_tokens
        if digest.hex() == record.token_hash:
            fitting.append(place)
    return ordered[max(fitting)] if fitting else None


def manifests(folder: Path) -> dict[str, Path]:
    """Manifests of a session's snapshots, by name."""
    return {path.stem: path for path in _entries(folder) if path.suffix == _MANIFEST}


def orphans(folder: Path, kept: Collection[str]) -> list[Path]:
    """Entries of `snapshots/` that the snapshots `kept` do not need: they may be deleted.

    While one that is kept cannot be read, no data file is an orphan; files of other kinds are
    never one.
    """
    found = manifests(folder)
    in_use: set[str] | None = set()
    for name in kept:
        files = _data_files(found[name]) if name in found else []
        in_use = None if in_use is None or files is None else in_use | set(files)
    left = [path for name, path in found.items() if name not in kept]
    for path in _entries(folder):
        is_unused = (
            in_use is not None and _DATA.fullmatch(path.name) and path.name not in in_use
        )
        if is_unused or path.suffix == _TEMPORARY:
            left.append(path)
    return left


def everything(folder: Path) -> list[Path]:
    """All entries of `snapshots/`; of a link in its place, the link."""
    place = folder / FOLDER
    return [place] if place.is_symlink() else _entries(folder)


def missing(folder: Path, tree: Tree) -> list[str]:
    """Snapshots that the transcript names and the disk does not hold."""
    there = manifests(folder)
    return [name for name in tree.snapshots if name not in there]


def _entries(folder: Path) -> list[Path]:
    place = folder / FOLDER
    return sorted(place.iterdir()) if is_real_dir(place) else []


def _data_files(manifest: Path) -> list[str] | None:
    """Names of the files that a manifest lists; None: it cannot be read."""
    try:
        fd = FileOps().open(manifest, os.O_RDONLY)
        try:
            body = json.loads(os.pread(fd, _MAX_MANIFEST, 0))
        finally:
            os.close(fd)
        return [str(link["file"]) for link in body["links"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def remove(paths: Iterable[Path], ops: FileOps) -> int:
    """Delete entries of `snapshots/`; returns the bytes freed.

    Raises:
        OSError: one cannot be deleted.
    """
    freed = 0
    for path in paths:
        if is_real_dir(path):
            freed += tree_bytes(path)
            ops.remove_tree(path)
        else:
            freed += path.lstat().st_size
            ops.unlink(path)
    return freed


def check_snapshot_name(name: str) -> str:
    """A name that the engine gave a snapshot. Raises SessionFileError for an unsafe one."""
    if not _NAME.fullmatch(name):
        raise SessionFileError(
            f"{name!r:.80} cannot name a snapshot",
            "1 to 64 letters, digits, - and _, a letter or digit first.",
        )
    return name
