"""The clock of `gpu_time`: a launch alone, in a chain, and how long its kernel ran."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

N_LAUNCHES = 64
N_REPEATS = 5

Launch = Callable[[mx.array, int], mx.array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Something to time: `launch(x, i)` uses copy i of the weights, `n_bytes` of them."""

    label: str
    launch: Launch
    n_bytes: int
    n_copies: int
    x: mx.array


@mx.compile
def _behind(x: mx.array, y: mx.array) -> mx.array:
    """X, made to wait for y."""
    return x + y * 0


def measure(timed: Timed, copy_gbps: float) -> dict[str, Any]:
    """Median time of a launch, alone and in a chain."""
    order = [i % timed.n_copies for i in range(N_LAUNCHES)]
    mx.eval(timed.launch(timed.x, 0))

    def free() -> Sequence[mx.array]:
        return [timed.launch(timed.x, i) for i in order]

    def chained() -> Sequence[mx.array]:
        x = timed.x
        for i in order:
            y = timed.launch(x, i)
            x = _behind(timed.x, y.reshape(-1)[:1].astype(x.dtype))
        return [x]

    def chain_alone() -> Sequence[mx.array]:
        x = timed.x
        for _ in order:
            x = _behind(timed.x, x.reshape(-1)[:1])
        return [x]

    free_s, chained_s, alone_s = (
        median_time(f) / N_LAUNCHES for f in (free, chained, chain_alone)
    )
    net = max(chained_s - alone_s, 1e-9)
    gbps = timed.n_bytes / net / 1e9
    inside = kernel_seconds(free)
    return {
        "label": timed.label,
        "bytes": timed.n_bytes,
        "chained_us": net * 1e6,
        "free_us": free_s * 1e6,
        "chain_op_us": alone_s * 1e6,
        "kernel_us": None if inside is None else inside / N_LAUNCHES * 1e6,
        "gbps": gbps,
        "percent": 100 * gbps / copy_gbps,
        "free_percent": 100 * timed.n_bytes / free_s / 1e9 / copy_gbps,
    }


def median_time(make: Callable[[], Sequence[mx.array]]) -> float:
    """Median seconds of evaluating what `make` returns."""
    times = []
    for _ in range(N_REPEATS + 1):
        made = list(make())
        mx.synchronize()
        started = time.perf_counter()
        mx.eval(made)
        mx.synchronize()
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))


def kernel_seconds(make: Callable[[], Sequence[mx.array]]) -> float | None:
    """Seconds that this program's own kernels ran in; None without PyTorch and its profiler."""
    try:
        from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415  (optional)
    except ImportError:
        return None
    made = list(make())
    mx.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        mx.eval(made)
        mx.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    runs = [e["dur"] for e in events if e.get("cat") == "kernel" and "ds4_" in e["name"]]
    return sum(runs) / 1e6 if runs else None


def copy_bandwidth() -> float:
    """GB/s of reading and writing 2 GB."""
    a = mx.random.uniform(shape=(1 << 29,))
    mx.eval(a)

    def copies() -> list[mx.array]:
        return [a + float(i) for i in range(4)]

    return 4 * 2 * a.nbytes / median_time(copies) / 1e9
