"""The optional fast matrix product of the CPU backend: built, checked and loaded before MLX.

MLX on Linux sends every float32 product to one function, `cblas_sgemm`. A library that has one
and is loaded first takes its place; nothing else changes. `kernels/cpu_sgemm.c` is such a
library: like the stock one it gives a row the same bits whatever is multiplied beside it, and
it is several times faster. It comes with the package where there was a compiler when that was
built; else it is compiled once, with the system's C compiler. Whatever goes wrong, the stock
product stays: `enable` never raises. This module must not import MLX.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.cpu_blas_build import (
    LIBRARY,
    MACHINES,
    SOURCES_HASH,
    BlasError,
    compile_sources,
    find_compiler,
    hash_sources,
    read_sources,
)

# Shapes (K, N) that reach every kind of tile: whole and part ones, packed and in place.
CHECKED_SHAPES = ((256, 512), (1024, 24), (4, 4), (64, 97), (1, 3), (129, 1), (600, 70))

_MAX_ROWS = 8  # of a pass that must be exact
_LEVEL_FLAGS = ("avx2", "fma", "avx512f")
_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112

_log = logging.getLogger("ds4chat.cpu_blas")
Matrix = NDArray[np.float32]


class Library:
    """A loaded build of `kernels/cpu_sgemm.c`.

    Args:
        path: the shared library.
        is_global: whether libraries loaded later find its `cblas_sgemm`.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it is another library.
    """

    def __init__(self, path: Path, *, is_global: bool) -> None:
        mode = os.RTLD_NOW | (os.RTLD_GLOBAL if is_global else os.RTLD_LOCAL)
        library = ctypes.CDLL(str(path), mode=mode)
        self.path = path
        self._calls, self._level, self._use = (
            library.ds4_sgemm_calls,
            library.ds4_sgemm_level,
            library.ds4_sgemm_use,
        )
        self._calls.restype, self._calls.argtypes = ctypes.c_uint64, ()
        self._level.restype, self._level.argtypes = ctypes.c_char_p, ()
        self._use.restype, self._use.argtypes = ctypes.c_int, (ctypes.c_char_p,)
        i, f, p = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
        self.sgemm = library.cblas_sgemm
        self.sgemm.restype = None
        self.sgemm.argtypes = (i, i, i, i, i, i, f, p, i, p, i, f, p, i)

    @property
    def n_calls(self) -> int:
        """How often its `cblas_sgemm` was called in this process, by anyone."""
        return int(self._calls())

    @property
    def level(self) -> str:
        """The build in use: base, avx2 or avx512."""
        return str(self._level().decode("ascii"))

    def use(self, level: str) -> bool:
        """Use the build of that name; False: this CPU lacks it."""
        return bool(self._use(level.encode("ascii")))

    def multiply(self, x: Matrix, w: Matrix, *, is_turned: bool = False) -> Matrix:
        """`x @ w` of contiguous `(M, K)` and `(K, N)`, or `x @ w.T` of a turned `(N, K)`."""
        (m, k), n = x.shape, w.shape[0 if is_turned else 1]
        out = np.empty((m, n), np.float32)
        trans = _TRANS if is_turned else _NO_TRANS
        self.sgemm(
            _ROW_MAJOR, _NO_TRANS, trans, m, n, k, 1.0, x.ctypes.data, max(k, 1),
            w.ctypes.data, max(w.shape[1], 1), 0.0, out.ctypes.data, max(n, 1),
        )  # fmt: skip
        return out


@dataclass(slots=True)
class _Loaded:
    """What this process uses: a library cannot be unloaded, so there is one."""

    library: Library | None = None
    status: str = ""
    own_calls: int = 0


_loaded = _Loaded()


def enable(cache_dir: Path, source: Path, shipped: Path | None = None) -> str:
    """Let MLX find the fast product; call before `mlx.core` is imported.

    The build that came with the package is taken if it was made from these sources. Else one is
    looked for in `cache_dir` by the hash of the source, the compiler and what the CPU can do.
    None is used before it has passed its self-test on a CPU of this kind. Later calls
    change nothing and return what the first one did.

    Args:
        cache_dir: a folder that only this user can write; created if missing.
        source: `cpu_sgemm.c`, with its header beside it.
        shipped: the package's folder of compiled files; it need not exist.

    Returns:
        One line: the build in use, or why the stock product stays.
    """
    if not _loaded.status:
        try:
            _loaded.library = _load(cache_dir, source, shipped)
            _loaded.own_calls = _loaded.library.n_calls
            _loaded.status = f"fast CPU products ({_loaded.library.level})"
        except (BlasError, OSError, AttributeError, subprocess.SubprocessError) as error:
            _loaded.status = f"stock CPU products: {error}"
        _log.info("%s", _loaded.status)
    return _loaded.status


def status() -> str:
    """What `enable` last returned, or an empty string before it."""
    return _loaded.status


def is_in_use() -> bool:
    """Whether anyone but `self_test` has called the fast product: MLX, that is."""
    library = _loaded.library
    return library is not None and library.n_calls > _loaded.own_calls


def self_test(shapes: Sequence[tuple[int, int]] = CHECKED_SHAPES) -> bool:
    """Whether the loaded library keeps its promise for products with `(K, N)` weights.

    1 to 8 rows among shuffled neighbours must equal single rows bit for bit, and single rows
    the float64 product up to the rounding of K additions. False without a library.
    """
    library = _loaded.library
    if library is None:
        return False
    before = library.n_calls
    is_right = is_exact(library, shapes)
    _loaded.own_calls += library.n_calls - before
    return is_right


def is_exact(library: Library, shapes: Sequence[tuple[int, int]]) -> bool:
    """`self_test` for any library."""
    rng = np.random.default_rng(4)
    return all(
        _is_exact(library, rng, shape, is_turned)
        for shape in shapes
        for is_turned in (False, True)
    )


def _is_exact(
    library: Library, rng: np.random.Generator, shape: tuple[int, int], is_turned: bool
) -> bool:
    k, n = shape
    x = rng.standard_normal((_MAX_ROWS, k), np.float32)
    w = rng.standard_normal((n, k) if is_turned else (k, n), np.float32)
    rows = [library.multiply(row[None], w, is_turned=is_turned) for row in x]
    alone = np.concatenate(rows)
    exact_w = (w.T if is_turned else w).astype(np.float64)
    bound = (k + 1) * 2.0**-24 * (np.abs(x.astype(np.float64)) @ np.abs(exact_w))
    if not bool((np.abs(alone - x.astype(np.float64) @ exact_w) <= bound).all()):
        return False
    for n_rows in (*range(1, _MAX_ROWS + 1), 4 * _MAX_ROWS):
        chosen = rng.permutation(np.arange(n_rows) % _MAX_ROWS)
        among = library.multiply(np.ascontiguousarray(x[chosen]), w, is_turned=is_turned)
        if not np.array_equal(among, alone[chosen]):
            return False
    return True


# Finding and making a build.


def _load(cache_dir: Path, source: Path, shipped: Path | None) -> Library:
    if platform.system() != "Linux" or platform.machine() not in MACHINES:
        raise BlasError(f"there is no other for {platform.system()} {platform.machine()}")
    if "mlx.core" in sys.modules:
        raise BlasError("MLX was imported before")
    texts = read_sources(source)
    _make_private(cache_dir)
    made = _find_shipped(shipped, texts, cache_dir) if shipped is not None else None
    if made is not None:
        return Library(made, is_global=True)
    compiler = find_compiler()
    path = cache_dir / f"cpu_sgemm-{_key(texts, compiler)}.so"
    if not path.exists():
        _build(texts, compiler, path)
    _check_private(path, stat.S_ISREG)
    return Library(path, is_global=True)


def _find_shipped(folder: Path, texts: dict[str, bytes], cache_dir: Path) -> Path | None:
    """The package's own build, if it is of these sources and right on this CPU.

    The self-test runs once for a build and a kind of CPU; an empty file remembers it.
    """
    path = folder / LIBRARY
    try:
        is_same = (folder / SOURCES_HASH).read_text("ascii").strip() == hash_sources(texts)
        content = path.read_bytes() if is_same else b""
    except (OSError, ValueError):
        return None
    if not content:
        return None
    words = (hashlib.sha256(content).hexdigest(), platform.machine(), _cpu_level())
    passed = cache_dir / f"passed-{hashlib.sha256(repr(words).encode()).hexdigest()[:24]}"
    if not passed.exists():
        if not is_exact(Library(path, is_global=False), CHECKED_SHAPES):
            _log.warning("%s fails its self-test on this CPU", path)
            return None
        passed.touch(mode=0o600)
    return path


def _key(texts: dict[str, bytes], compiler: Path) -> str:
    """Names a build: another source, compiler, machine or CPU level makes another."""
    made = compiler.stat()
    words = (str(compiler), made.st_size, made.st_mtime_ns, platform.machine(), _cpu_level())
    return hashlib.sha256(repr((hash_sources(texts), words)).encode()).hexdigest()[:24]


def _cpu_level() -> tuple[str, ...]:
    """The instruction sets that decide which kernels run (and were tested)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    flags = next((line.split() for line in lines.splitlines() if line.startswith("flags")), [])
    return tuple(flag for flag in _LEVEL_FLAGS if flag in flags)


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder, stat.S_ISDIR)


def _check_private(path: Path, is_kind: Callable[[int], bool]) -> None:
    """Refuse what another user could have put there: it would run as us."""
    found = path.lstat()
    if not is_kind(found.st_mode):
        raise BlasError(f"{path} is a link or of another kind")
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BlasError(f"{path} can be written by others (mode {found.st_mode & 0o777:o})")


def _build(texts: dict[str, bytes], compiler: Path, path: Path) -> None:
    """Compile in a folder of our own, test, and move the result to `path` in one step."""
    _log.info("compiling %s with %s", path.name, compiler)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as folder:
        made = compile_sources(texts, compiler, Path(folder))
        if not is_exact(Library(made, is_global=False), CHECKED_SHAPES):
            raise BlasError(f"what {compiler} made fails its self-test")
        made.chmod(0o700)
        made.replace(path)
