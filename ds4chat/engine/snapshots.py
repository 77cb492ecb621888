"""Snapshots of sessions: taken on the engine's thread, written on another, restored whole.

A restored session continues bit for bit as if it had never stopped: tokens, logits, state, and
with the fixed policy the provenance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat import __version__
from ds4chat.engine.engine import Engine
from ds4chat.engine.marks import gone_back
from ds4chat.engine.runner import Timeline, prefill_chunk
from ds4chat.engine.session import Session
from ds4chat.engine.snapshot_chain import (
    MAX_LINKS,
    REBUILD_HINT,
    Base,
    Head,
    Identity,
    Lineage,
    Link,
    Manifest,
    compare,
    token_hash,
)
from ds4chat.engine.snapshot_files import (
    Files,
    Scan,
    read_link,
    read_manifest,
    write_snapshot,
)
from ds4chat.engine.snapshot_pack import Bits, PackRule, pack, plain, unpack
from ds4chat.errors import EngineError, SettingsError, SnapshotError
from ds4chat.formats.safetensors import SafeFile, Tensor, decode, encode
from ds4chat.formats.show import shown_path
from ds4chat.model.kv import to_numpy
from ds4chat.protocol.types import Source

IDS, LOGITS = "ids", "logits"
_GROWING = (".rows", ".index_rows")
"""Endings of the arrays of which a link holds only the rows since its parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotData:
    """A session's logical state, copied: any thread may write it.

    `arrays` holds the rows after those of `base`; `rules` how they pack.
    """

    head: Head
    arrays: Mapping[str, Bits]
    rules: Mapping[str, PackRule]
    identity: Identity
    ctx: int
    base: Base
    folder: Path
    lineage: Lineage

    def tensors(self) -> dict[str, Tensor]:
        """What goes into the data file, packed."""
        tensors = {
            IDS: plain(np.array(self.head.ids[self.base.n :], np.int32)),
            LOGITS: plain(self.head.row),
        }
        for name, rows in self.arrays.items():
            tensors.update(pack(name, rows, self.rules.get(name)))
        return tensors

    def manifest(self, link: Link) -> Manifest:
        """The manifest, once the data file is there."""
        head = self.head
        return Manifest(
            identity=self.identity,
            ctx=self.ctx,
            n=len(head.ids),
            token_hash=token_hash(head.ids),
            sampling=head.sampling,
            next_source=head.next_source,
            n_rounds=head.n_rounds,
            parent=self.base.name,
            links=(*self.base.links, link),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A session that goes on, and what a person should know about it."""

    session: Session
    manifest: Manifest
    notices: tuple[str, ...]


def identity(engine: Engine) -> Identity:
    """What a snapshot of this engine must be compared with."""
    model, support = engine.fingerprints
    info = engine.info
    return Identity(
        model=model,
        support=support,
        kv_fp8=info.kv_fp8,
        activation_dtype=info.activation_dtype,
        prefill_chunk=prefill_chunk(),
        build=__version__,
        backend=info.backend,
        device=info.device,
    )


def take(engine: Engine, session: Session, folder: Path) -> SnapshotData:
    """Copy a session's state, on the engine's thread; continues the last snapshot in `folder`.

    Raises:
        SnapshotError: the session holds no evaluated token.
    """
    return _take(engine, session.timeline, _head(session), folder)


def take_before_reply(engine: Engine, session: Session, folder: Path) -> SnapshotData:
    """The same of the state before the newest reply's opener was read.

    A prompt that leaves that reply's reasoning out shares nothing beyond it.

    Raises:
        SnapshotError: that state is not held any more.
    """
    mark, timeline = session.marks.newest, session.timeline
    if mark is None or mark.row is None:
        raise SnapshotError("nothing to save: the state before the reply is not held")
    head = _head(session)
    head = replace(head, ids=head.ids[: mark.n], row=mark.row, next_source=Source.PLAIN)
    with gone_back(timeline, mark):
        return _take(engine, timeline, head, folder)


def _head(session: Session) -> Head:
    try:
        return session.head()
    except EngineError as error:
        raise SnapshotError(f"nothing to save: {error.message}", error.hint) from error


def _take(engine: Engine, timeline: Timeline, head: Head, folder: Path) -> SnapshotData:
    if not np.isfinite(head.row).all():
        raise SnapshotError("nothing to save: the state holds NaN or infinity")
    base = timeline.lineage.base  # read once: the writer's thread may replace it
    if not _can_continue(base, folder, len(head.ids)):
        base = Base()
    lazy = timeline.lazy_state(base.n)
    mx.eval(list(lazy.values()))  # sync: once for everything that is copied below
    return SnapshotData(
        head=head,
        arrays={name: to_numpy(part) for name, part in lazy.items()},
        rules=pack_rules(engine, lazy),
        identity=identity(engine),
        ctx=engine.info.ctx,
        base=base,
        folder=folder,
        lineage=timeline.lineage,
    )


def write(data: SnapshotData, name: str, files: Files) -> Manifest:
    """Write a snapshot under `name`, on any thread; the next one of the session continues it.

    Raises:
        SnapshotError: the name cannot be used, or the disk refuses; then nothing has changed.
    """
    n = len(data.head.ids)
    chunks = encode(data.tensors(), {"ds4chat": "snapshot"})
    manifest = write_snapshot(files, data.folder, name, chunks, data.manifest, n)
    data.lineage.base = Base(folder=data.folder, name=name, links=manifest.links)
    return manifest


def restore(engine: Engine, folder: Path, name: str) -> Restored:
    """A new session that continues a snapshot. Everything is checked before it is made.

    Raises:
        SnapshotError: missing, damaged, of a later version, or it does not fit the engine.
    """
    manifest = read_manifest(folder, name)
    notices = compare(manifest.identity, identity(engine))
    if manifest.n > engine.info.ctx:
        raise SnapshotError(
            f"the snapshot holds {manifest.n:,} tokens; the context is {engine.info.ctx:,}",
            f"Start with --ctx {manifest.ctx} or more. {REBUILD_HINT}",
        )
    loader = _Loader(engine, folder, manifest)
    head, state = loader.load()
    timeline = engine.runner.new_timeline()
    timeline.restore(manifest.n, state)
    mx.eval(timeline.arrays())  # sync: whatever fails must fail before the session is made
    timeline.lineage.base = Base(folder=folder, name=name, links=manifest.links)
    session = _session(engine, head)
    session.resume(head, timeline)
    return Restored(session=session, manifest=manifest, notices=notices)


def candidates(found: Scan, ids: Sequence[int]) -> tuple[str, ...]:
    """Names of the snapshots whose tokens are a prefix of `ids`, the longest first."""
    fitting = [
        (-manifest.n, name)
        for name, manifest in found.manifests.items()
        if manifest.n <= len(ids) and token_hash(ids[: manifest.n]) == manifest.token_hash
    ]
    return tuple(name for _, name in sorted(fitting))


def pack_rules(engine: Engine, names: Mapping[str, Any]) -> dict[str, PackRule]:
    """Which state arrays went through which round trip."""
    if not engine.info.kv_fp8:
        return {}
    runner = engine.runner
    target = PackRule(rope_dim=runner.target.config.block.rope_dim)
    drafter = runner.drafter
    draft = PackRule(rope_dim=drafter.config.block.rope_dim) if drafter is not None else target
    rules: dict[str, PackRule] = {}
    for name in names:
        if name.endswith(".index_rows"):
            rules[name] = PackRule(is_index=True)
        elif name.endswith((".window", ".rows")):
            rules[name] = draft if name.startswith("draft.") else target
    return rules


def _can_continue(base: Base, folder: Path, n: int) -> bool:
    """Whether the next snapshot can build on the last one's files, or must stand alone."""
    return (
        base.folder == folder
        and 0 < len(base.links) < MAX_LINKS
        and base.n <= n
        and all((folder / link.file).is_file() for link in base.links)
    )


def _session(engine: Engine, head: Head) -> Session:
    try:
        return engine.session(**asdict(head.sampling))
    except SettingsError as error:
        raise SnapshotError(f"the snapshot's {error.message}", REBUILD_HINT) from error


class _Loader:
    """Reads a chain and checks it against what the engine's own state would look like."""

    def __init__(self, engine: Engine, folder: Path, manifest: Manifest) -> None:
        self._engine = engine
        self._folder = folder
        self._manifest = manifest

    def load(self) -> tuple[Head, dict[str, Bits]]:
        """The head and the logical state.

        Raises:
            SnapshotError: a file is damaged, or holds something else than it should.
        """
        links = self._manifest.links
        files = [decode(read_link(self._folder, link), link.file) for link in links]
        return self._head(files), self._state(files)

    def _head(self, files: list[SafeFile]) -> Head:
        manifest, n_vocab = self._manifest, self._engine.info.n_vocab
        starts = [0, *(link.n for link in manifest.links)]
        parts = []
        for i, file in enumerate(files):
            wanted = ((starts[i + 1] - starts[i],), np.dtype(np.int32))
            parts.append(self._checked(IDS, self._plain(file, IDS), wanted))
        ids = tuple(int(i) for i in np.concatenate(parts))
        if token_hash(ids) != manifest.token_hash:
            raise self._damaged("its tokens do not have the hash of the manifest")
        if not all(0 <= i < n_vocab for i in ids):
            raise self._damaged(f"a token lies outside the vocabulary of {n_vocab:,}")
        row = self._plain(files[-1], LOGITS)
        row = self._checked(LOGITS, row, ((n_vocab,), np.dtype(np.float32))).copy()
        if not np.isfinite(row).all():
            raise self._damaged("its logits are not finite")
        return Head(
            ids=ids,
            row=row,
            sampling=manifest.sampling,
            next_source=manifest.next_source,
            n_rounds=manifest.n_rounds,
        )

    def _state(self, files: list[SafeFile]) -> dict[str, Bits]:
        state: dict[str, Bits] = {}
        for name, (shape, dtype) in expected_state(self._engine, self._manifest.n).items():
            sources = files if name.endswith(_GROWING) else files[-1:]
            parts = [self._unpacked(file, name, dtype) for file in sources]
            width = {part.shape[1:] for part in parts}
            if width != {shape[1:]} or {part.dtype for part in parts} != {dtype}:
                raise self._damaged(f"'{name}' has rows of {width}, {shape[1:]} wanted")
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
            state[name] = self._checked(name, joined, (shape, dtype))
        return state

    def _unpacked(self, file: SafeFile, name: str, dtype: np.dtype[Any]) -> Bits:
        try:
            return unpack(file.tensors, name, dtype)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise self._damaged(f"'{name}' cannot be read ({error})") from error

    def _plain(self, file: SafeFile, name: str) -> NDArray[Any]:
        if name not in file.tensors:
            raise self._damaged(f"'{name}' is missing")
        return file.tensors[name].data

    def _checked(
        self, name: str, found: Bits, wanted: tuple[tuple[int, ...], np.dtype[Any]]
    ) -> Bits:
        if (found.shape, found.dtype) != wanted:
            raise self._damaged(
                f"'{name}' is {found.dtype} {found.shape}; {wanted[1]} {wanted[0]} wanted"
            )
        return found

    def _damaged(self, what: str) -> SnapshotError:
        return SnapshotError(
            f"{shown_path(self._folder)}: the snapshot is damaged: {what}", REBUILD_HINT
        )


def expected_state(engine: Engine, n: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of every state array of this engine at `n` tokens (none is evaluated)."""
    timeline = engine.runner.new_timeline()
    timeline.log.reserve(n)
    timeline.log.n = n
    return {
        name: (
            tuple(part.shape),
            np.dtype(np.uint16 if part.dtype == mx.bfloat16 else np.float32),
        )
        for name, part in timeline.lazy_state().items()
    }
