"""Build hook of the package: compile the optional CPU matrix product, if there is a compiler.

Without one the package is complete all the same: the library is then compiled at a first start,
or MLX's own product is used. `DS4CHAT_BUILD_CPU_BLAS=0` leaves it out and makes a wheel that is
the same for every platform.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSTALLED = "ds4chat/_native"


class CustomBuildHook(BuildHookInterface):
    """Adds `_native/cpu_sgemm.so` and the hash of its sources to what is installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into the checkout's `_native`, and name the platform of the wheel."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        builder = load_builder(root / "ds4chat" / "ops" / "cpu_blas_build.py")
        try:
            files = build(builder, root)
        except (builder.BlasError, OSError, subprocess.SubprocessError) as error:
            self.app.display_info(f"without the optional CPU library: {error}")
            return
        if version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"
            for path in files:
                build_data["force_include"][str(path)] = f"{INSTALLED}/{path.name}"


def load_builder(path: Path) -> ModuleType:
    """The module that compiles; by path, since the package's requirements are not here."""
    spec = importlib.util.spec_from_file_location("cpu_blas_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(builder: ModuleType, root: Path) -> list[Path]:
    """Compile, unless the files are there already; their paths."""
    if os.environ.get("DS4CHAT_BUILD_CPU_BLAS", "1") == "0":
        raise builder.BlasError("the environment says so")
    if sys.platform != "linux" or platform.machine() not in builder.MACHINES:
        raise builder.BlasError(f"there is none for {sys.platform} {platform.machine()}")
    texts = builder.read_sources(root / "kernels" / "cpu_sgemm.c")
    folder = root / INSTALLED
    library, stamp = folder / builder.LIBRARY, folder / builder.SOURCES_HASH
    wanted = builder.hash_sources(texts)
    if not (library.is_file() and stamp.is_file() and stamp.read_text("ascii") == wanted):
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            made = builder.compile_sources(texts, builder.find_compiler(), Path(work))
            stamp.unlink(missing_ok=True)
            made.replace(library)
            stamp.write_text(wanted, "ascii")
    return [library, stamp]


def platform_tag() -> str:
    """The first tag of this platform that installers accept, glibc's version in it."""
    from packaging.tags import platform_tags  # noqa: PLC0415

    return next(iter(platform_tags()))
