"""`ds4chat bench decode`: plain decoding on every plain path of this build, in one run."""

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

BAR = 0.9
"""Plain as shipped must reach this share of the fastest plain path, exact or not."""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Its own flags."""
    add = parser.add_argument
    add("-n", "--tokens", type=whole(1, MAX_TOKENS), default=64, metavar="N",
        help="tokens a run (default 64)")  # fmt: skip
    add("--context", type=whole(1, MAX_TOKENS), default=256, metavar="N",
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
    for fact in ("launches", "nodes"):
        counts = [sample.facts[fact] for sample in shipped]
        rows += bench_engine.spread(f"{SHIPPED}, a token", fact, counts)
    rows += _fastest(cases)
    for case, found in cases.items():
        if case != SHIPPED:
            ratios = bench_engine.paired(shipped, found, bench_engine.rate)
            rows += bench_engine.spread(f"{SHIPPED} / {case}", "x", ratios)
    return rows


def _fastest(cases: dict[str, list[Sample]]) -> list[Row]:
    """Plain as shipped against the fastest plain path of each run."""
    from ds4chat.engine.bench_runs import SHIPPED

    best: dict[int, float] = {}
    for sample in (sample for found in cases.values() for sample in found):
        best[sample.run] = max(best.get(sample.run, 0.0), bench_engine.rate(sample))
    ratios = [bench_engine.rate(s) / best[s.run] for s in cases.get(SHIPPED, [])]
    rows = bench_engine.spread(f"{SHIPPED} / the fastest plain path", "x", ratios)
    is_missed = any(row.median < BAR for row in rows)
    return bench_engine.judged(rows, f"bar {BAR}", is_missed=is_missed)


BENCH = Bench(name="decode", title="plain decoding", samples=_samples, rows=_rows)
