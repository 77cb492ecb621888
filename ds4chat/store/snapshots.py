"""What a session knows of its KV snapshots: names and hashes. Their content is the engine's.

A snapshot `NAME` is every entry of `snapshots/` called `NAME` or `NAME.<suffix>`. The
transcript is the authority: a snapshot that it does not name is an orphan.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from ds4chat.errors import SessionFileError
from ds4chat.store.files import FileOps, is_real_dir, tree_bytes
from ds4chat.store.records import SnapshotSaved
from ds4chat.store.tree import Tree

FOLDER = "snapshots"


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


def chain(records: Iterable[SnapshotSaved], name: str) -> list[str]:
    """`name` and the snapshots that it continues, newest first."""
    by_name = {record.name: record for record in records}
    found: list[str] = []
    while name in by_name and name not in found:
        found.append(name)
        name = by_name[name].parent
    return found


def on_disk(folder: Path) -> dict[str, list[Path]]:
    """Entries of a session's `snapshots/` by snapshot name; links are listed, not followed."""
    place = folder / FOLDER
    found: dict[str, list[Path]] = {}
    if is_real_dir(place):
        for entry in sorted(place.iterdir()):
            name = entry.name.lstrip(".").split(".", 1)[0]
            found.setdefault(name, []).append(entry)
    return found


def orphans(folder: Path, tree: Tree) -> list[Path]:
    """Entries of `snapshots/` that the transcript does not name: they may be deleted."""
    kept = {
        name for record in tree.snapshots for name in chain(tree.snapshots.values(), record)
    }
    return [
        path
        for name, entries in on_disk(folder).items()
        for path in entries
        if name not in kept or path.name.startswith(".")
    ]


def missing(folder: Path, tree: Tree) -> list[str]:
    """Snapshots that the transcript names and the disk does not hold."""
    there = on_disk(folder)
    return [name for name in tree.snapshots if name not in there]


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
    if (
        not name
        or len(name) > 120
        or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    ):
        raise SessionFileError(f"{name!r:.80} cannot name a snapshot")
    return name
