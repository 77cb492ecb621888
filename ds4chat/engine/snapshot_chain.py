"""What a snapshot says about itself: its manifest, and whether it belongs to an engine.

A snapshot is a manifest `NAME.json` and a chain of data files. Compressed rows never change, so
a data file holds only those since its parent; everything else it holds whole. The manifest
lists every file of its chain with size and SHA-256, so it does not need its parent's manifest,
and a data file is in use as long as one manifest lists it.
"""

from __future__ import annotations

import array
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ds4chat.errors import SnapshotError
from ds4chat.formats.show import printable
from ds4chat.protocol.types import Sampling, Source

FORMAT = 1
"""Version of manifest and data files that this build writes; it reads 1 to this."""

MAX_LINKS = 16
"""Longest chain; the next snapshot stands on its own again."""

REBUILD_HINT = "The conversation is kept; its tokens can be evaluated again."
OLDER_BUILD = "continues from here, not bit-identical to the older build"

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)")
_DATA_FILE = re.compile(r"[0-9a-f]{32}\.safetensors")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """State of a session beside the arrays; `row` `(V,)` float32 logits of the last token."""

    ids: tuple[int, ...]
    row: NDArray[np.float32]
    sampling: Sampling
    next_source: Source
    n_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which engine made a snapshot; `model` and `support` are fingerprints."""

    model: str
    support: str  # empty: no support file
    kv_fp8: bool
    activation_dtype: str
    prefill_chunk: int
    build: str
    backend: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One data file; `n` is the number of tokens that it brings the chain to."""

    file: str
    n_bytes: int
    sha256: str
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One snapshot. `parent` is the name it continued, empty for one that stands alone."""

    identity: Identity
    ctx: int
    n: int
    token_hash: str
    sampling: Sampling
    next_source: Source
    n_rounds: int
    parent: str
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Files on the disk that the next snapshot of a timeline may build on.

    `name` is empty if no snapshot holds exactly these links.
    """

    folder: Path = Path()
    name: str = ""
    links: tuple[Link, ...] = ()

    @property
    def n(self) -> int:
        """Tokens that the links hold."""
        return self.links[-1].n if self.links else 0


@dataclass(slots=True, kw_only=True)
class Lineage:
    """Which saved rows are a prefix of one timeline's.

    The writer's thread replaces `base` while the engine's may read it: always as a whole.
    """

    base: Base = Base()

    def back_to(self, n: int) -> Lineage:
        """What remains of it for a timeline that goes back to `n` tokens.

        It is another object also where all remains: a save that is under way must not reach it.
        """
        base = self.base
        links = tuple(link for link in base.links if link.n <= n)
        name = base.name if links == base.links else ""
        return Lineage(base=Base(folder=base.folder, name=name, links=links))


def token_hash(ids: Sequence[int]) -> str:
    """SHA-256 (hex) over ids as four bytes each, little-endian."""
    words = array.array("i", ids)
    if sys.byteorder == "big":
        words.byteswap()
    return hashlib.sha256(words.tobytes()).hexdigest()


def check_name(name: str) -> str:
    """A snapshot's name that cannot leave its folder.

    Raises:
        SnapshotError: the name is not made of 1 to 64 letters, digits, `-` and `_`.
    """
    if not is_name(name):
        raise SnapshotError(
            f"snapshot name '{printable(name)}' cannot be used",
            "Use 1 to 64 letters, digits, - and _, a letter or digit first.",
        )
    return name


def is_name(name: str) -> bool:
    """Whether a text can name a snapshot."""
    return bool(_NAME.fullmatch(name)) and not _RESERVED.fullmatch(name)


def is_data_file(name: str) -> bool:
    """Whether a file name is one of ours for data."""
    return _DATA_FILE.fullmatch(name) is not None


def data_file(sha256: str) -> str:
    """The name of the data file with this hash: equal names mean equal bytes."""
    return f"{sha256[:32]}.safetensors"


def compare(saved: Identity, engine: Identity) -> tuple[str, ...]:
    """Say whether a snapshot belongs to an engine.

    Returns:
        Notices: what differs but does not forbid going on.

    Raises:
        SnapshotError: names every field that must be equal and is not, with both values.
    """
    problems = [
        f"{words} is {_shown(getattr(saved, field))} in the snapshot, "
        f"{_shown(getattr(engine, field))} here"
        for field, words in _MUST_EQUAL.items()
        if getattr(saved, field) != getattr(engine, field)
    ]
    if problems:
        raise SnapshotError(
            "the snapshot does not fit: " + "; ".join(problems),
            f"Start with the same files and options. {REBUILD_HINT}",
        )
    changed = [
        f"{field} {_shown(getattr(saved, field))}, now {_shown(getattr(engine, field))}"
        for field in ("build", "backend", "device")
        if getattr(saved, field) != getattr(engine, field)
    ]
    return (f"{OLDER_BUILD} ({'; '.join(changed)})",) if changed else ()


_MUST_EQUAL = {
    "model": "the model",
    "support": "the support file",
    "kv_fp8": "kv_fp8",
    "activation_dtype": "the activation type",
    "prefill_chunk": "the prefill chunk",
}


def _shown(value: object) -> str:
    if isinstance(value, str):
        return printable(value[:12] if _HEX.fullmatch(value) else value) or "none"
    return str(value)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of `NAME.json`, with their own SHA-256 as the last word."""
    body = {"format": FORMAT, **asdict(manifest)}
    text = json.dumps(body, indent=1, sort_keys=True)
    return json.dumps(
        {**body, "sha256": hashlib.sha256(text.encode("ascii")).hexdigest()},
        indent=1,
        sort_keys=True,
    ).encode("ascii")


def decode_manifest(raw: bytes, where: str) -> Manifest:
    """Check and read a manifest.

    Raises:
        SnapshotError: damaged, or written by a later version of this program.
    """
    try:
        body = json.loads(raw.decode("ascii"))
        version = body["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(where, "it cannot be read") from None
    if isinstance(version, int) and version > FORMAT:
        raise SnapshotError(
            f"{printable(where, 400)}: snapshot format {version}; this version of ds4chat "
            f"reads 1 to {FORMAT}",
            f"Use a newer ds4chat for it. {REBUILD_HINT}",
        )
    try:
        manifest = _manifest(body)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise _damaged(where, printable(f"{error}", 120)) from None
    if encode_manifest(manifest) != raw:
        raise _damaged(where, "its hash does not fit its content")
    _check_chain(manifest, where)
    return manifest


def _damaged(where: str, what: str) -> SnapshotError:
    return SnapshotError(
        f"{printable(where, 400)}: the snapshot is damaged: {what}", REBUILD_HINT
    )


def _manifest(body: Mapping[str, Any]) -> Manifest:
    fields = {**body}
    del fields["format"], fields["sha256"]
    fields["identity"] = _typed(Identity, fields["identity"])
    fields["sampling"] = _typed(Sampling, fields["sampling"])
    fields["next_source"] = Source(fields["next_source"])
    fields["links"] = tuple(_typed(Link, link) for link in fields["links"])
    return _typed(Manifest, fields)


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (float, int),
}


def _typed(kind: type[T], fields: Any) -> T:
    """A dataclass of these fields, each of its declared simple type."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"{type(fields).__name__} instead of {kind.__name__}")
    annotations: dict[str, str] = kind.__annotations__
    for name, value in fields.items():
        wanted = _KINDS.get(annotations[name])
        is_wrong_int = isinstance(value, bool) and annotations[name] != "bool"
        if wanted is not None and (not isinstance(value, wanted) or is_wrong_int):
            raise TypeError(f"{name} is a {type(value).__name__}")
    return kind(**fields)


def _check_chain(manifest: Manifest, where: str) -> None:
    links = manifest.links
    counts = [0, *(link.n for link in links)]
    is_sound = (
        1 <= len(links) <= MAX_LINKS
        and counts == sorted(counts)
        and counts[-1] == manifest.n
        and manifest.n >= 1
        and all(
            _HEX.fullmatch(link.sha256) and link.file == data_file(link.sha256)
            for link in links
        )
        and all(link.n_bytes >= 0 for link in links)
    )
    if not is_sound:
        raise _damaged(where, "its list of files is not sound")
