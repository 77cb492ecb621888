"""Building, checking and loading the fast product; what happens when that goes wrong."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat.ops import cpu_blas, cpu_blas_build
from ds4chat.paths import kernels_dir

SOURCE = kernels_dir() / "cpu_sgemm.c"
COMPILER = next(filter(None, map(shutil.which, cpu_blas_build.COMPILERS)), None)

needs_compiler = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux", reason="no C compiler, or not Linux"
)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="not Linux")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded neither the library nor MLX."""
    monkeypatch.setattr(cpu_blas, "_loaded", cpu_blas._Loaded())
    for name in [name for name in sys.modules if name.split(".")[0] == "mlx"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds a build."""
    cache = tmp_path_factory.mktemp("cache") / "blas"
    assert _enable_elsewhere(cache).startswith("fast CPU products")
    return cache


def _run(code: str, *arguments: object) -> list[str]:
    """Run code in a process of its own, as the engine is one; its lines."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


ENABLE = """
import sys
from pathlib import Path
from ds4chat.ops import cpu_blas
print(cpu_blas.enable(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def _enable_elsewhere(cache: Path) -> str:
    return _run(ENABLE, cache, SOURCE)[0]


def _compiler_that(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "a-compiler"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    path.chmod(0o700)
    return path


def _with_compiler(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None if path is None else str(path))


# With a compiler.

USE = (
    ENABLE
    + """
print(cpu_blas.self_test(), cpu_blas.is_in_use())
import mlx.core as mx
import numpy as np
mx.set_default_device(mx.Device(mx.cpu))
rng = np.random.default_rng(0)
x, w = (mx.array(rng.standard_normal(s, np.float32)) for s in ((6, 256), (256, 512)))
before = cpu_blas._loaded.library.n_calls
product = x @ w
mx.eval(product)
print(cpu_blas.is_in_use(), cpu_blas._loaded.library.n_calls > before)
rows = [x[i : i + 1] for i in range(6)]
turned = mx.contiguous(w.T)
pairs = [
    (product, mx.concatenate([r @ w for r in rows])),
    (x @ turned.T, mx.concatenate([r @ turned.T for r in rows])),
    (mx.addmm(x[:, :1], x, w), mx.concatenate([mx.addmm(r[:, :1], r, w) for r in rows])),
]
print(all(np.array_equal(np.array(a), np.array(b)) for a, b in pairs))
exact = np.array(x).astype(np.float64) @ np.array(w).astype(np.float64)
print(np.abs(np.array(product) - exact).max() < 1e-4)
"""
)


@needs_compiler
def test_mlx_uses_it_and_its_rows_keep_their_bits(built: Path) -> None:
    lines = _run(USE, built, SOURCE)
    assert lines[0].startswith("fast CPU products (")
    assert lines[1:] == ["True False", "True True", "True", "True"]


STOCK = """
import sys
from ds4chat.ops import cpu_blas
import mlx.core as mx
mx.eval(mx.ones((2, 2)) @ mx.ones((2, 2)))
print(cpu_blas.is_in_use(), cpu_blas.self_test(), repr(cpu_blas.status()))
"""


def test_nothing_is_in_use_without_enable() -> None:
    assert _run(STOCK) == ["False False ''"]


def test_module_does_not_import_mlx() -> None:
    code = "import sys, ds4chat.ops.cpu_blas; print('mlx' in sys.modules)"
    assert _run(code) == ["False"]


@needs_compiler
def test_build_is_private_and_made_once(built: Path) -> None:
    (path,) = built.iterdir()
    assert stat.S_IMODE(built.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    made_ns = path.stat().st_mtime_ns
    assert _enable_elsewhere(built).startswith("fast CPU products")
    assert [p.stat().st_mtime_ns for p in built.iterdir()] == [made_ns]


@needs_compiler
def test_later_calls_change_nothing(built: Path, tmp_path: Path) -> None:
    code = ENABLE + "print(cpu_blas.enable(Path('/nowhere'), Path('/nowhere/x.c')))"
    first, second = _run(code, built, SOURCE)
    assert first == second


@needs_compiler
def test_another_source_gets_another_build(built: Path, tmp_path: Path) -> None:
    for name in ("cpu_sgemm.c", *cpu_blas_build.HEADERS):
        shutil.copy(SOURCE.with_name(name), tmp_path / name)
    header = tmp_path / cpu_blas_build.HEADERS[0]
    texts = cpu_blas_build.read_sources(tmp_path / SOURCE.name)
    compiler = cpu_blas_build.find_compiler()
    same = cpu_blas._key(texts, compiler)
    assert (built / f"cpu_sgemm-{same}.so").is_file()
    header.write_bytes(header.read_bytes() + b"\n")
    assert cpu_blas._key(cpu_blas_build.read_sources(tmp_path / SOURCE.name), compiler) != same
    assert cpu_blas._key(texts, _compiler_that(tmp_path, "exit 0")) != same


# The build that comes with the package.

SHIPPED = """
import sys
from pathlib import Path
from ds4chat.ops import cpu_blas
print(cpu_blas.enable(*map(Path, sys.argv[1:4])))
"""


@pytest.fixture
def shipped(built: Path, tmp_path: Path) -> Path:
    """A package's folder with a build of the present sources."""
    folder = tmp_path / "native"
    folder.mkdir()
    (made,) = built.glob("cpu_sgemm-*.so")
    shutil.copy(made, folder / cpu_blas_build.LIBRARY)
    wanted = cpu_blas_build.hash_sources(cpu_blas_build.read_sources(SOURCE))
    (folder / cpu_blas_build.SOURCES_HASH).write_text(wanted)
    return folder


@needs_compiler
def test_shipped_build_is_used_and_tested_once(shipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert _run(SHIPPED, cache, SOURCE, shipped)[0].startswith("fast CPU products")
    (passed,) = cache.iterdir()
    assert passed.name.startswith("passed-")
    made_ns = passed.stat().st_mtime_ns
    assert _run(SHIPPED, cache, SOURCE, shipped)[0].startswith("fast CPU products")
    assert passed.stat().st_mtime_ns == made_ns


@needs_compiler
def test_shipped_build_of_other_sources_is_not_used(shipped: Path, tmp_path: Path) -> None:
    (shipped / cpu_blas_build.SOURCES_HASH).write_text("0" * 64)
    cache = tmp_path / "cache"
    assert _run(SHIPPED, cache, SOURCE, shipped)[0].startswith("fast CPU products")
    assert [path.suffix for path in cache.iterdir()] == [".so"]


@needs_compiler
def test_shipped_build_that_is_wrong_here_is_not_used(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_blas, "is_exact", lambda *_: False)
    texts = cpu_blas_build.read_sources(SOURCE)
    cache = tmp_path / "cache"
    cache.mkdir()
    assert cpu_blas._find_shipped(shipped, texts, cache) is None
    assert list(cache.iterdir()) == []


# Every failure leaves the stock product, in one line.


def _enable_here(cache: Path, source: Path = SOURCE) -> str:
    status = cpu_blas.enable(cache, source)
    assert status.startswith("stock CPU products: ")
    assert "\n" not in status
    assert cpu_blas.status() == status
    assert not cpu_blas.is_in_use()
    assert not cpu_blas.self_test()
    return status


def test_other_systems_keep_the_stock_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert "Darwin" in _enable_here(tmp_path / "c")
    assert not (tmp_path / "c").exists()


@linux_only
def test_too_late_once_mlx_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx.core", sys)
    assert "MLX was imported before" in _enable_here(tmp_path / "c")


@linux_only
def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_compiler(monkeypatch, None)
    assert "no C compiler" in _enable_here(tmp_path / "c")


@linux_only
def test_missing_source_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_compiler(monkeypatch, _compiler_that(tmp_path, "exit 0"))
    assert "absent.c" in _enable_here(tmp_path / "c", tmp_path / "absent.c")


@linux_only
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo line one >&2; echo line two >&2; exit 1", "failed: line one"),
        ("exit 3", "failed: 3"),
        ("exit 0", "failed: 0"),
        ("echo rubbish > cpu_sgemm.so", "cpu_sgemm.so"),
        ("exec sleep 60", "took more than"),
    ],
)
def test_compiler_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    if "sleep" in script:  # the others have the time that a busy machine takes for them
        monkeypatch.setattr(cpu_blas_build, "COMPILE_TIMEOUT_S", 0.5)
    _with_compiler(monkeypatch, _compiler_that(tmp_path, script))
    assert reason in _enable_here(tmp_path / "c")
    assert list((tmp_path / "c").iterdir()) == []


@needs_compiler
def test_other_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'echo "int nothing;" > x.c; {COMPILER} -shared x.c -o cpu_sgemm.so'
    _with_compiler(monkeypatch, _compiler_that(tmp_path, script))
    assert "ds4_sgemm_calls" in _enable_here(tmp_path / "c")


# Libraries that break the promise, and one that is plainly wrong.
_SUM = b"sum[r][v] = NAME(fma)(factor[r], x[v], sum[r][v]);"
_WRONG = {
    "neighbours": (_SUM, _SUM[:-1] + b" * (rows == 2 ? 1.0000002f : 1.0f);"),
    "value": (b"a += a_col;", b"a += a_col; q += q == 100;"),
}


@needs_compiler
@pytest.mark.parametrize("change", _WRONG.values(), ids=_WRONG.keys())
def test_build_that_fails_its_test_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[bytes, bytes]
) -> None:
    flags = tuple("-O1" if flag == "-O3" else flag for flag in cpu_blas_build.FLAGS)
    monkeypatch.setattr(cpu_blas_build, "FLAGS", flags)  # it need not be fast
    texts = cpu_blas_build.read_sources(SOURCE)
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.replace(*change))
    assert cpu_blas_build.read_sources(tmp_path / SOURCE.name) != texts
    assert "self-test" in _enable_here(tmp_path / "c", tmp_path / SOURCE.name)
    assert list((tmp_path / "c").iterdir()) == []


@needs_compiler
def test_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "c"
    cache.mkdir()
    cache.chmod(0o770)
    assert "can be written by others" in _enable_here(cache)
    assert list(cache.iterdir()) == []


@needs_compiler
def test_folder_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "c").symlink_to(tmp_path / "real")
    assert "is a link" in _enable_here(tmp_path / "c")


@needs_compiler
def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _enable_here(tmp_path / "file" / "c")


@needs_compiler
@pytest.mark.parametrize("how", ["mode", "link"])
def test_build_that_others_can_write_is_not_loaded(
    built: Path, tmp_path: Path, how: str
) -> None:
    cache = tmp_path / "c"
    cache.mkdir(mode=0o700)
    (path,) = built.iterdir()
    planted = cache / path.name
    if how == "link":
        planted.symlink_to(path)
    else:
        shutil.copy(path, planted)
        planted.chmod(0o722)
    _enable_here(cache)


@needs_compiler
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_build_of_another_user_is_not_loaded(built: Path, tmp_path: Path) -> None:
    cache = tmp_path / "c"
    cache.mkdir(mode=0o700)
    (path,) = built.iterdir()
    shutil.copy(path, cache / path.name)
    os.chown(cache / path.name, 12345, 12345)
    _enable_here(cache)


@linux_only
def test_cpu_level_is_read_from_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "processor: 0\nflags\t\t: fpu fma avx2 avx512bw\n"
    monkeypatch.setattr(Path, "read_text", lambda *_a, **_k: text)
    assert cpu_blas._cpu_level() == ("avx2", "fma")
