"""`ds4chat bench launches`: what one step asks of the device, by part of the layer."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ds4chat.cli import bench_engine
from ds4chat.cli.amounts import MAX_TOKENS, whole
from ds4chat.cli.bench_engine import Bench, Row

if TYPE_CHECKING:
    from ds4chat.engine.bench_runs import Sample
    from ds4chat.engine.engine import Engine


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Its own flags."""
    parser.add_argument(
        "--context", type=whole(1, MAX_TOKENS), default=256, metavar="N",
        help="tokens held before (default 256)",
    )  # fmt: skip
    bench_engine.add_options(parser)


def _samples(engine: Engine, options: argparse.Namespace) -> Iterator[Sample]:
    from ds4chat.engine import launch_runs

    return launch_runs.launches(engine, options.context, options.repeat)


def _rows(samples: list[Sample]) -> list[Row]:
    from ds4chat.engine.launch_runs import ATTENTION, EXPERTS, OUTPUT, REST, WHOLE

    cases = bench_engine.by_case(samples)
    rows: list[Row] = []
    for fact in ("launches", "nodes"):
        counts = {case: found[0].facts[fact] for case, found in cases.items()}
        if {WHOLE, ATTENTION, EXPERTS, OUTPUT} <= counts.keys():
            parts = sum(counts[part] for part in (ATTENTION, EXPERTS, OUTPUT))
            counts[REST] = counts[WHOLE] - parts
        for case, number in counts.items():
            rows += bench_engine.spread(case, fact, [float(number)])
    for case, found in cases.items():
        built = [1e3 * sample.facts["built_s"] for sample in found]
        rows += bench_engine.spread(f"{case}, building the graph", "ms", built)
        rows += bench_engine.spread(f"{case}, in all", "ms", bench_engine.each_ms(found))
    return rows


BENCH = Bench(name="launches", title="launches of a step", samples=_samples, rows=_rows)
