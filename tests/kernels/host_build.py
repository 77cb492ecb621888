"""Kernels on the host: the same `.kernel` text, compiled by the system's C++ compiler.

Builds are kept in a folder of this user under the system's temporary folder, by the hash of
their text, so that a second run compiles nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.spec import KernelSpec, KernelText, read_text
from ds4chat.paths import kernels_dir
from tests.kernels.cases import Case, from_bf16

COMPILERS = ("g++", "c++", "clang++")
FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-w", "-U_FORTIFY_SOURCE",
)  # fmt: skip
C_TYPES = {
    "float32": "float",
    "bfloat16": "bf16",
    "float16": "half_bits",
    "uint8": "uint8_t",
    "uint32": "uint32_t",
    "int32": "int32_t",
}
Array = NDArray[Any]


def find_compiler() -> str | None:
    """The system's C++ compiler, if there is one."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def wrap(spec: KernelSpec, text: KernelText, types: Sequence[str]) -> str:
    """A C++ file that runs the body over a grid. `types` are those of inputs, then outputs."""
    names = (*spec.inputs, *spec.outputs)
    lines = [text.header, "static void** arguments;", "static const int (*shapes)[4];"]
    lines += ["static void body() {"]
    for i, (name, kind) in enumerate(zip(names, types, strict=True)):
        const = "const " if i < len(spec.inputs) else ""
        lines += [f"{const}{C_TYPES[kind]}* {name} = ({const}{C_TYPES[kind]}*)arguments[{i}];"]
        lines += [f"const int* {name}_shape = shapes[{i}];"]
    lines += [text.body, "}"]
    lines += [
        'extern "C" const char* launch(void** a, const int (*s)[4], unsigned threads,',
        "                             unsigned blocks) {",
        "  arguments = a; shapes = s;",
        "  return host::run(body, threads, blocks);",
        "}",
    ]
    return "\n".join(lines)


def _cache_dir() -> Path:
    folder = Path(tempfile.gettempdir()) / f"ds4chat-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix="ds4chat-kernels-"))
    return folder


@cache
def _precompiled(compiler: str, flags: tuple[str, ...], folder: Path) -> list[str]:
    """Options that read the standard headers ready parsed: a third of a build's time."""
    prelude = (kernels_dir() / "prelude_host.h").read_text(encoding="ascii")
    text = "".join(line + "\n" for line in prelude.splitlines() if line.startswith("#include"))
    key = hashlib.sha256(repr((compiler, flags, text)).encode()).hexdigest()[:20]
    header = folder / f"standard-{key}.h"
    made = header.with_name(header.name + ".gch")
    if "g++" not in compiler or "clang" in compiler:
        return []
    if not made.exists():
        whole = header.with_suffix(f".{os.getpid()}")
        whole.write_text(text)
        whole.replace(header)  # another worker's compiler may be reading it
        part = made.with_suffix(f".{os.getpid()}")
        options = [f for f in flags if f != "-shared"]
        command = [compiler, *options, "-x", "c++-header", str(header), "-o", str(part)]
        if subprocess.run(command, capture_output=True, check=False, timeout=120).returncode:
            return []
        part.replace(made)
    return ["-include", str(header)]


@cache
def build(spec: KernelSpec, types: tuple[str, ...]) -> Any:
    """Compile one variant and return its `launch`."""
    compiler = find_compiler()
    assert compiler is not None, "tests skip themselves where there is no compiler"
    source = wrap(spec, read_text(spec, "host", kernels_dir()), types)
    flags = (*FLAGS, *(["-mfma"] if _has_fma() else []))
    key = hashlib.sha256(repr((compiler, flags, source)).encode()).hexdigest()[:20]
    made = _cache_dir() / f"{spec.name}-{key}.so"
    if not made.exists():
        ready = _precompiled(compiler, flags, made.parent)
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            unit, part = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
            unit.write_text(source)
            done = subprocess.run(
                [compiler, *flags, *ready, str(unit), "-o", str(part)],
                capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[:3000]
            part.replace(made)
    launch = ctypes.CDLL(str(made)).launch
    launch.restype = ctypes.c_char_p
    return launch


@cache
def _has_fma() -> bool:
    try:
        return " fma " in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def launch_at(
    spec: KernelSpec,
    types: Sequence[str],
    pointers: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
    n_blocks: int,
) -> None:
    """Launch a kernel on memory that the caller keeps, of its inputs and then its outputs.

    Args:
        spec: the variant.
        types: names of the arguments' types, as in `C_TYPES`.
        pointers: where each begins; the same memory may stand for several of them if the kernel
            says so.
        shapes: of four axes at most.
        n_blocks: the grid.

    Raises:
        AssertionError: lanes of a simdgroup parted ways, or it does not compile.
    """
    addresses = (ctypes.c_void_p * len(pointers))(*pointers)
    sizes = np.zeros((len(shapes), 4), np.int32)
    for row, shape in zip(sizes, shapes, strict=True):
        row[: len(shape)] = shape
    launch = build(spec, tuple(types))
    error = launch(addresses, ctypes.c_void_p(sizes.ctypes.data), spec.threads, n_blocks)
    assert not error, error.decode()


def run(case: Case, in_place: Mapping[int, int] | None = None) -> list[Array]:
    """Launch a kernel on NumPy arrays (bf16 as uint16 bits).

    Outputs begin as all ones bits (NaN), so that an element nobody writes is seen; but those of
    `in_place`, each with the input whose memory (of a copy) it shares.

    Raises:
        AssertionError: lanes of a simdgroup parted ways, or it does not compile.
    """
    kept = [np.ascontiguousarray(a) for a, _ in case.inputs]
    shared = in_place or {}
    for at in shared.values():
        kept[at] = kept[at].copy()
    made: list[Array] = []
    for i, (shape, kind) in enumerate(case.outputs):
        if i in shared:
            made.append(kept[shared[i]])
            continue
        dtype = np.uint16 if kind == "bfloat16" else np.dtype(kind)
        out = np.empty(shape, dtype)
        out.view(np.uint8).fill(0xFF)
        made.append(out)
    arrays = [*kept, *made]
    types = (*(kind for _, kind in case.inputs), *(kind for _, kind in case.outputs))
    pointers, shapes = [a.ctypes.data for a in arrays], [a.shape for a in arrays]
    launch_at(case.spec, types, pointers, shapes, case.n_blocks)
    return [from_bf16(a) if a.dtype == np.uint16 else a for a in made]
