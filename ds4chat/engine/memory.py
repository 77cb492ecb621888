"""How much memory MLX may use here: the device's own answer, or the operating system's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx

from ds4chat.engine.fit import Memory

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_of(backend: str) -> Memory | None:
    """What `backend` may use; None where nothing is known."""
    if backend == "cpu":
        return _of_machine(_meminfo(), _limit())
    return of_device(mx.device_info())


def of_device(info: Mapping[str, str | int]) -> Memory | None:
    """Read a GPU's answer: Metal names a working set, CUDA total and free memory."""
    name = str(info.get("device_name", "the GPU"))
    total, working = info.get("memory_size"), info.get("max_recommended_working_set_size")
    if isinstance(total, int) and isinstance(working, int):
        return Memory(usable=working, total=total, what=name, wired=True)
    total, free = info.get("total_memory"), info.get("free_memory")
    if isinstance(total, int):
        return Memory(usable=free if isinstance(free, int) else total, total=total, what=name)
    return None


def _of_machine(meminfo: Mapping[str, int], limit: int | None) -> Memory | None:
    total = meminfo.get("MemTotal") or _pages()
    if total is None:
        return None
    usable = meminfo.get("MemAvailable", total)
    if limit is not None:
        total, usable = min(total, limit), min(usable, limit)
    return Memory(usable=usable, total=total, what="this machine")


def parse_meminfo(text: str) -> dict[str, int]:
    """Fields of Linux's /proc/meminfo in bytes; lines that are something else are left out."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
            found[name] = int(words[0]) * 1024
    return found


def _meminfo() -> dict[str, int]:
    try:
        return parse_meminfo(_MEMINFO.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return {}


def _limit() -> int | None:
    """The control group's limit in bytes; None without one."""
    for path in _CGROUPS:
        try:
            text = path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return None


def _pages() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
