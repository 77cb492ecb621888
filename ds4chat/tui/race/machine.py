"""What a speed was measured on: the machine and the versions, as far as they can be known."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ds4chat import __version__
from ds4chat.tui.markdown.clean import clean_line

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine in words. `memory_bytes` 0: unknown."""

    system: str
    processor: str
    n_cores: int
    memory_bytes: int
    python: str
    ds4chat: str
    mlx: str


def look(cpuinfo: Path = _CPUINFO) -> Machine:
    """Look at this machine."""
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(cpuinfo),
        n_cores=os.cpu_count() or 0,
        memory_bytes=_memory(),
        python=platform.python_version(),
        ds4chat=__version__,
        mlx=_version("mlx"),
    )


def _processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return clean_line(next(named, "") or platform.processor() or "unknown")


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
