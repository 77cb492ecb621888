"""What a list shows of a session, from the two ends of its transcript only.

A transcript may be long and a folder may hold hundreds, so nothing but the first and the last
kilobytes are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds4chat.store import codec, snapshots, transcripts
from ds4chat.store.clean import clean_line
from ds4chat.store.codec import BadLineError
from ds4chat.store.files import FileOps, tree_bytes
from ds4chat.store.records import VERSION

WINDOW_BYTES = 64 * 1024
PREVIEW_CHARS = 120
_WIDER_BYTES = (1 << 20, 16 << 20)  # looked at only for a reply that was cut off
_TEXT = b'"text":"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A session in a list. Sizes in bytes, times in seconds since 1970.

    `trouble` says why a session cannot be opened; the other fields then hold what is known.
    """

    name: str
    path: Path
    text_bytes: int = 0
    kv_bytes: int = 0
    n_turns: int = 0
    model: str = ""
    changed_s: float = 0.0
    first: str = ""  # how the first message begins
    last: str = ""  # how the newest message begins, if it is near the end
    trouble: str = ""

    @property
    def n_bytes(self) -> int:
        """Size of all."""
        return self.text_bytes + self.kv_bytes


def summarize(folder: Path, ops: FileOps | None = None) -> Summary:
    """Look at one session's folder. Never raises for what is in it."""
    name = folder.name
    kv_bytes = tree_bytes(folder / snapshots.FOLDER)
    try:
        fd = (ops or FileOps()).open(folder / transcripts.FILE_NAME, os.O_RDONLY)
    except OSError as error:
        why = error.strerror or "cannot be read"
        return Summary(
            name=name, path=folder, kv_bytes=kv_bytes, trouble=f"no transcript: {why}"
        )
    try:
        found = os.fstat(fd)
        head = os.pread(fd, WINDOW_BYTES, 0)
        last = _tail(fd, found.st_size)
    finally:
        os.close(fd)
    first = list(_rows(head.split(b"\n")))
    return Summary(
        name=name,
        path=folder,
        text_bytes=found.st_size,
        kv_bytes=kv_bytes,
        n_turns=next(_turns(last), 0),
        model=_model(last) or _model(reversed(first)),
        changed_s=found.st_mtime,
        first=_asked(first),
        last=_asked(last),
        trouble=_trouble(first),
    )


def _tail(fd: int, n_bytes: int) -> list[dict[str, Any]]:
    """The last rows, the newest first: further back while a long reply hides the question."""
    rows: list[dict[str, Any]] = []
    for window in (WINDOW_BYTES, *_WIDER_BYTES):
        tail = os.pread(fd, window, max(0, n_bytes - window))
        rows = list(_rows(tail.split(b"\n")[::-1]))
        if window >= n_bytes or any(_turns(rows)):
            break
    return rows


def _turns(rows: Iterable[dict[str, Any]]) -> Iterator[int]:
    return (row["turns"] for row in rows if type(row.get("turns")) is int)


def _rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The lines that are whole, and of a cut message what there is of it."""
    for line in lines:
        try:
            yield codec.parse(line)
        except BadLineError:
            if line.startswith(b'{"kind":"asked"') and _TEXT in line:
                cut = line.split(_TEXT, 1)[1][: 8 * PREVIEW_CHARS]
                yield {"kind": "asked", "text": cut.decode("utf-8", "replace")}


def _asked(rows: list[dict[str, Any]]) -> str:
    texts = (row.get("text") for row in rows if row.get("kind") == "asked")
    return clean_line(
        next((text for text in texts if isinstance(text, str)), ""), PREVIEW_CHARS
    )


def _model(rows: Iterable[dict[str, Any]]) -> str:
    for row in rows:
        model = row.get("model") if row.get("kind") == "options" else None
        if isinstance(model, dict) and isinstance(model.get("name"), str):
            quant = model.get("quant")
            words = f"{model['name']} {quant}" if isinstance(quant, str) else model["name"]
            return clean_line(words, 60)
    return ""


def _trouble(rows: list[dict[str, Any]]) -> str:
    version = rows[0].get("version") if rows else None
    if not rows:
        return "not a transcript"
    if type(version) is int and version > VERSION:
        return f"session format {version}, from a newer ds4chat"
    return ""
