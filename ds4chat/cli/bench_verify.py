"""`ds4chat bench verify`: passes over 1 to 8 rows, their times and their bits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ds4chat.cli import bench_engine
from ds4chat.cli.bench_engine import Bench, Row

if TYPE_CHECKING:
    from ds4chat.engine.bench_runs import Sample
    from ds4chat.engine.engine import Engine


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Its own flags."""
    parser.add_argument(
        "--context", type=bench_engine.positive, default=256, metavar="N",
        help="tokens held before (default 256)",
    )  # fmt: skip
    bench_engine.add_options(parser)


def _samples(engine: Engine, options: argparse.Namespace) -> Iterator[Sample]:
    from ds4chat.engine import bench_runs

    return bench_runs.verify(engine, options.context, options.repeat)


def _rows(samples: list[Sample]) -> list[Row]:
    cases = bench_engine.by_case(samples)
    single = cases.get("T(1)", [])
    rows: list[Row] = []
    for case, found in cases.items():
        is_exact = all(sample.is_identical for sample in found)
        note = "bits of single rows" if is_exact else "NOT the bits of single rows"
        rows += bench_engine.spread(case, "ms", bench_engine.each_ms(found), note)
    for case, found in cases.items():
        ratios = bench_engine.paired(found, single, lambda sample: sample.seconds)
        if case != "T(1)":
            rows += bench_engine.spread(f"{case} / T(1)", "x", ratios)
    return rows


BENCH = Bench(name="verify", title="passes over 1 to 8 rows", samples=_samples, rows=_rows)
