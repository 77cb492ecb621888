"""What Python does for a decode step of Flash's 43 layers, timed without a GPU.

`python -m tests.kernels.host_time [--profile]`. Launches are nodes that compute nothing: a
step is all plan and graph. Prints medians in microseconds, behind contexts of two lengths.
"""

from __future__ import annotations

import argparse
import cProfile
import dataclasses
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path

import mlx.core as mx

from ds4chat.engine.backend import choose_backend
from ds4chat.engine.graph_count import count, lazy_step
from ds4chat.engine.load import load
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.model.source import Storage
from ds4chat.ops import dispatch
from tests.kernels.lazy_dispatch import LazyDispatcher
from tests.make_flash_shapes import TINY, write

SPEC = dataclasses.replace(TINY, heads=8, q_lora=256)
N_STEPS = 64


def opened(folder: Path) -> Runner:
    """A model of Flash's layers and tiny sizes, its weights kept as on a GPU."""
    path = folder / "flash.gguf"
    write(path, SPEC)
    backend = dataclasses.replace(
        choose_backend("cpu"), storage=Storage(dtype=mx.bfloat16, keeps_blocks=True)
    )
    dispatch.use(LazyDispatcher())
    loaded = load(path, None, backend=backend, kv_fp8=True, on_loading=lambda *_: None)
    return Runner(loaded.target, None, is_row_exact=True)


def begun(runner: Runner, n: int) -> Timeline:
    """A timeline that holds `n` tokens of nothing."""
    timeline = runner.new_timeline()
    timeline.log.reserve(n + 256)
    timeline.log.n = n
    mx.eval(timeline.arrays())
    return timeline


def steps(
    runner: Runner, timeline: Timeline, rows: int, n: int
) -> tuple[list[float], list[float]]:
    """Seconds of planning and of building the graph, for each of `n` steps."""
    plans, builds = [], []
    for _ in range(n):
        start = time.perf_counter()
        plan = runner.target.plan(timeline.log, [5] * rows, timeline.log.n, row_exact=True)
        planned = time.perf_counter()
        held = [layer.arrays() for layer in timeline.log.layers]
        began = time.perf_counter()
        result = runner.target.evaluate(timeline.log, plan)
        built = time.perf_counter()
        del result
        for layer, arrays in zip(timeline.log.layers, held, strict=True):
            layer.put(arrays)
        timeline.log.n += rows
        plans.append(planned - start)
        builds.append(built - began)
    return plans, builds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    is_profiled = parser.parse_args().profile
    with tempfile.TemporaryDirectory() as folder:
        runner = opened(Path(folder))
    for n in (300, 2300):
        for rows in (1, 6):
            timeline = begun(runner, n)
            steps(runner, timeline, rows, 32)
            seconds = steps(runner, timeline, rows, N_STEPS)
            plan, build = (statistics.median(each) * 1e6 for each in seconds)
            counted = count(lazy_step(runner, timeline, 5)) if rows == 1 else None
            nodes = f", {counted.nodes} nodes" if counted is not None else ""
            sys.stdout.write(
                f"{n:6} tokens, {rows} rows: plan {plan:6.0f}, build {build:6.0f}{nodes}\n"
            )
    if is_profiled:
        timeline = begun(runner, 2300)
        steps(runner, timeline, 1, 32)
        profile = cProfile.Profile()
        profile.runcall(steps, runner, timeline, 1, N_STEPS)
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(28)


if __name__ == "__main__":
    main()
