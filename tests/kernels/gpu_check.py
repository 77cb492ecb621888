"""Check every kernel on this machine's GPU: `python -m tests.kernels.gpu_check`.

One line each: error to a float64 reference, whether a row's bits ignore the rows beside it,
seconds to compile. `--time` adds launches at Flash shapes; `--json FILE` keeps everything.
Needs mlx and numpy alone. A failure is printed and the next kernel is tried.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.dispatch import Dispatcher, Output
from tests.kernels.cases import ALL_ROWS, Case, Family, check
from tests.kernels.gpu_time import time_all
from tests.kernels.variants import gpu_families

Array = NDArray[Any]
tell = partial(print, flush=True)
DEADLINE_S = 140.0
CHECKS_S = 85.0  # of them for the checks, when launches are timed too
SUBSETS = (
    (0,),
    (5,),
    (7,),
    (1, 4),
    (2, 3, 6),
    (0, 2, 4, 6),
    (7, 6, 5, 1, 0),
    (1, 2, 3, 4, 5, 6),
)
_LOG_LINES = 12


class GpuRunner:
    """Runs cases through the same dispatcher as the engine."""

    def __init__(self, backend: str) -> None:
        self.dispatcher = Dispatcher(backend=backend)

    def __call__(self, case: Case) -> Sequence[Array]:
        inputs = [to_device(values, kind) for values, kind in case.inputs]
        outputs = [Output(shape=s, dtype=getattr(mx, kind)) for s, kind in case.outputs]
        made = self.dispatcher.launch(case.spec, inputs, case.n_blocks, outputs)
        return [np.array(a.astype(mx.float32)) for a in made]


def to_device(values: Array, kind: str) -> mx.array:
    """A NumPy array as an MLX array of type `kind` (bf16 given as its bits)."""
    array = mx.array(values)
    return array.view(mx.bfloat16) if kind == "bfloat16" else array


def check_family(family: Family, run: GpuRunner) -> dict[str, Any]:
    """Compile, check, and say what was found."""
    started = time.perf_counter()
    run(family.make(ALL_ROWS[:1]))
    compile_s = time.perf_counter() - started
    found = check(family, run, SUBSETS)
    return {
        "kernel": family.kernel,
        "format": family.format,
        "shape": family.shape,
        "nmse": found.nmse,
        "close": found.is_close,
        "invariant": found.is_invariant,
        "compile_s": round(compile_s, 2),
    }


def say(result: dict[str, Any]) -> None:
    """One line."""
    words = f"{result['kernel']:14} {result['format']:17} {result['shape']:16}"
    if "error" in result:
        tell(f"{words} FAILED")
        for line in str(result["error"]).splitlines()[:_LOG_LINES]:
            tell(f"    {line}")
        return
    close = "" if result["close"] else "  NOT CLOSE"
    invariant = "yes" if result["invariant"] else "NO"
    tell(
        f"{words} nmse {result['nmse']:.1e}{close}  invariant {invariant}"
        f"  compile {result['compile_s']:.2f} s",
    )


def check_all(backend: str, wanted: str, deadline: float) -> list[dict[str, Any]]:
    """Every family whose label has `wanted`, until `deadline`."""
    run, results = GpuRunner(backend), []
    for maker in gpu_families(backend):
        family = maker()
        if wanted not in family.label:
            continue
        if time.monotonic() > deadline:
            tell(f"out of time before {family.label}")
            break
        try:
            result = check_family(family, run)
        except Exception as error:  # noqa: BLE001  the next kernel must still be tried
            result = {
                "kernel": family.kernel,
                "format": family.format,
                "shape": family.shape,
                "error": f"{type(error).__name__}: {error}",
            }
        say(result)
        results.append(result)
    return results


def main() -> int:
    """Run the checks; 1 when one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", action="store_true", help="time launches at Flash shapes too")
    parser.add_argument("--json", type=Path, help="write all results there")
    parser.add_argument("--only", default="", help="families whose label has these words")
    parser.add_argument("--no-check", action="store_true", help="with --time: time only")
    options = parser.parse_args()
    started = time.monotonic()
    backend = "cuda" if mx.cuda.is_available() else "metal" if mx.metal.is_available() else ""
    if not backend:
        tell("MLX has no GPU here")
        return 2
    mx.set_default_device(mx.Device(mx.gpu))
    tell(f"{backend}: {mx.device_info()}")
    limit = CHECKS_S if options.time else DEADLINE_S
    checks = [] if options.no_check else check_all(backend, options.only, started + limit)
    times: list[dict[str, Any]] = []
    if options.time:
        times = time_all(backend, options.only, started + DEADLINE_S)
    if options.json:
        report = {"backend": backend, "checks": checks, "times": times}
        options.json.write_text(json.dumps(report, indent=1))
    bad = [c for c in checks if "error" in c or not (c["close"] and c["invariant"])]
    tell(f"{len(checks) - len(bad)} of {len(checks)} right, {time.monotonic() - started:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
