"""What a kernel is: its source, its arguments, and how wrong it may be. Never needs a GPU.

A `.kernel` file is the body of a function in a small dialect that the preludes in `kernels/`
map to CUDA, Metal and plain C++ on the host. Constants are `#define` lines before the body, so
one file serves many variants; a variant's name ends in a hash of its whole text, because MLX
keeps compiled kernels on disk by name alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ds4chat.errors import KernelError

LANES = 32
FP32_NMSE = 1e-7
_ENTRY = "//! entry "


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Largest normalised mean square error to the float64 reference, and why."""

    nmse: float = FP32_NMSE
    reason: str = "float32 sums"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelSpec:
    """One variant of a kernel. Specs are made once and compared by identity.

    `in_place` says that outputs may lie where inputs lie: no block reads there what another
    writes. `source` and `headers` are names in `kernels/`; headers stand before the body in
    order. `constants` become `#define` lines. `threads` is the size of a block (a multiple of
    32).
    """

    name: str
    source: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    threads: int
    headers: tuple[str, ...] = ()
    constants: Mapping[str, int | float | str] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """A spec in one dialect: what stands before the generated function, and its body."""

    name: str
    header: str
    body: str


def grid_of(n_blocks: int, threads: int) -> tuple[int, int, int]:
    """MLX counts the grid in threads on both back ends."""
    return (n_blocks * threads, 1, 1)


def read_text(spec: KernelSpec, dialect: str, folder: Path) -> KernelText:
    """The text of `spec` for `dialect` (`cuda`, `metal` or `host`).

    Raises:
        KernelError: a file is missing; the message names it.
    """
    prelude = _read(folder / f"prelude_{dialect}.h")
    body = _read(folder / spec.source)
    parts = [_defines(spec.constants), prelude]
    parts += [_read(folder / name) for name in spec.headers]
    header = "\n".join(parts)
    full = "".join(f"{line}\n" for line in entry_lines(prelude)) + body
    digest = hashlib.sha256((header + "\0" + full).encode()).hexdigest()[:12]
    return KernelText(name=f"ds4_{spec.name}_{digest}", header=header, body=full)


def entry_lines(prelude: str) -> Sequence[str]:
    """The statements that a prelude wants at the top of every body."""
    lines = (line.partition(_ENTRY)[2].strip() for line in prelude.splitlines())
    return [line for line in lines if line]


def _defines(constants: Mapping[str, int | float | str]) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in constants.items())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise KernelError(
            f"the kernel source {path} cannot be read: {error.strerror}",
            "Install ds4chat again.",
        ) from error
