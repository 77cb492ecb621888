"""`ds4chat bench decode`: plain decoding on every plain path of this build, in one run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ds4chat.cli import bench_engine
from ds4chat.cli.bench_engine import Bench, Row

if TYPE_CHECKING:
    from ds4chat.engine.bench_runs import Sample
    from ds4chat.engine.engine import Engine

BAR = 0.9
"""Plain as shipped must reach this share of the fastest plain path, exact or not."""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Its own flags."""
    add = parser.add_argument
    add("-n", "--tokens", type=bench_engine.positive, default=64, metavar="N",
        help="tokens a run (default 64)")  # fmt: skip
    add("--context", type=bench_engine.positive, default=256, metavar="N",
        help="tokens held before (default 256)")  # fmt: skip
    bench_engine.add_options(parser)


def _samples(engine: Engine, options: argparse.Namespace) -> Iterator[Sample]:
    from ds4chat.engine import bench_runs

    return bench_runs.decode(engine, options.context, options.tokens, options.repeat)


def _rows(samples: list[Sample]) -> list[Row]:
    from ds4chat.engine.bench_runs import SHIPPED

    cases = bench_engine.by_case(samples)
    rows: list[Row] = []
    for case, found in cases.items():
        rows += bench_engine.spread(case, "tok/s", bench_engine.rates(found))
        rows += bench_engine.spread(f"{case}, a token", "ms", bench_engine.each_ms(found))
    shipped = cases.get(SHIPPED, [])
    for case, found in cases.items():
        if case != SHIPPED:
            ratios = bench_engine.paired(shipped, found, bench_engine.rate)
            rows += bench_engine.spread(f"{SHIPPED} / {case}", "x", ratios, f"bar {BAR}")
    return rows


BENCH = Bench(name="decode", title="plain decoding", samples=_samples, rows=_rows)
