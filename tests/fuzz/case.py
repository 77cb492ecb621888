"""What a case is: some files, made from a seed, and a part of the program that reads them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Odd(StrEnum):
    """Something that stands where a regular file is expected."""

    FOLDER = "folder"
    PIPE = "pipe"
    LINK = "link"  # to a file outside of the case
    LOOP = "loop"  # a link to itself
    ENDLESS = "endless"  # a link to a device that never ends


Files = Mapping[str, bytes | Odd]
"""Contents by path below the case's folder."""

OUTSIDE = b"outside of every case\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A part of the program that reads hostile input.

    Attributes:
        name: what `--target` calls it.
        make: a case from a generator that is seeded with the case's number, and nothing else.
        run: reads the files in the folder; returns a word or two about what came of it.
            Raises a `Ds4Error` where a person would see one.
        prepare: builds the seeds, once in a process.
        may_write: the folder below the case's in which files may be written; None: nowhere.
    """

    name: str
    make: Callable[[random.Random], Files]
    run: Callable[[Path], str]
    prepare: Callable[[], None]
    may_write: str | None = None

    def case(self, seed: int) -> Files:
        """The case of this number: always the same."""
        return self.make(random.Random(f"{self.name}:{seed}"))


def size_of(files: Files) -> int:
    """Bytes of all regular files of a case."""
    return sum(len(content) for content in files.values() if not isinstance(content, Odd))


def lay_out(files: Files, folder: Path) -> None:
    """Write a case into `folder`, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outside = folder.parent / "outside"
    outside.write_bytes(OUTSIDE)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Odd):
            _make_odd(path, content, outside)
        else:
            path.write_bytes(content)


def is_outside_whole(folder: Path) -> bool:
    """Whether the file beside the case's folder is as `lay_out` made it."""
    return (folder.parent / "outside").read_bytes() == OUTSIDE


def _make_odd(path: Path, odd: Odd, outside: Path) -> None:
    match odd:
        case Odd.FOLDER:
            path.mkdir()
        case Odd.PIPE:
            os.mkfifo(path)
        case Odd.LINK:
            path.symlink_to(outside)
        case Odd.LOOP:
            path.symlink_to(path.name)
        case Odd.ENDLESS:
            path.symlink_to("/dev/zero")
