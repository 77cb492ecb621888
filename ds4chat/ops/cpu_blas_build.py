"""Compile `kernels/cpu_sgemm.c` with the system's C compiler. Standard library only.

Used by `ds4chat.ops.cpu_blas` at a first start and, loaded by its path, by the package's build
hook, so that an installed ds4chat need not compile.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")
HEADERS = ("cpu_sgemm_tiles.h",)
MACHINES = ("x86_64", "aarch64")
COMPILE_TIMEOUT_S = 120.0
LIBRARY, SOURCES_HASH = "cpu_sgemm.so", "cpu_sgemm.sources"


class BlasError(Exception):
    """Why the stock product stays; never leaves this module and `cpu_blas`."""


def find_compiler() -> Path:
    """The system's C compiler.

    Raises:
        BlasError: there is none.
    """
    for name in COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return Path(found).resolve()
    raise BlasError(f"there is no C compiler ({', '.join(COMPILERS)})")


def read_sources(source: Path) -> dict[str, bytes]:
    """The unit and its headers by name, the unit first."""
    paths = [source, *(source.with_name(name) for name in HEADERS)]
    return {path.name: path.read_bytes() for path in paths}


def hash_sources(texts: dict[str, bytes]) -> str:
    """Names the sources of a build: 64 hexadecimal digits."""
    digest = hashlib.sha256(repr(FLAGS).encode())
    for name, text in sorted(texts.items()):
        digest.update(f"{name} {len(text)} ".encode() + text)
    return digest.hexdigest()


def compile_sources(texts: dict[str, bytes], compiler: Path, folder: Path) -> Path:
    """Compile sources by name, the first one the unit, inside `folder`; the library's path.

    Raises:
        BlasError: the compiler refuses, or takes too long.
    """
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    made = folder / LIBRARY
    command = [str(compiler), *FLAGS, next(iter(texts)), "-o", made.name]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BlasError(f"{compiler} took more than {COMPILE_TIMEOUT_S:g} s") from error
    if done.returncode != 0 or not made.is_file():
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise BlasError(f"{compiler} failed: {said[0] if said else done.returncode}")
    return made
