"""`ds4chat bench verify`: passes over 1 to 8 rows, their times and their bits."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ds4chat.cli import bench_engine
from ds4chat.cli.amounts import MAX_TOKENS, whole
from ds4chat.cli.bench_engine import Bench, Row

if TYPE_CHECKING:
    from ds4chat.engine.bench_runs import Sample
    from ds4chat.engine.engine import Engine


BAR = 1.3
"""Six rows may cost that many times what reading their additional experts takes."""
JUDGED_BYTES = 10**9
"""The bar is for Flash's sizes: from so many bytes of additional experts on."""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Its own flags."""
    parser.add_argument(
        "--context", type=whole(1, MAX_TOKENS), default=256, metavar="N",
        help="tokens held before (default 256)",
    )  # fmt: skip
    bench_engine.add_options(parser)


def _samples(engine: Engine, options: argparse.Namespace) -> Iterator[Sample]:
    from ds4chat.engine import bench_runs

    return bench_runs.verify(engine, options.context, options.repeat)


def _rows(samples: list[Sample]) -> list[Row]:
    from ds4chat.engine.bench_runs import COPY

    cases = bench_engine.by_case(samples)
    copies = cases.pop(COPY, [])
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
    return rows + _surplus_rows(cases, copies)


def _surplus_rows(cases: dict[str, list[Sample]], copies: list[Sample]) -> list[Row]:
    """What six rows cost beyond one, against reading the experts that they add."""
    one, six = cases.get("T(1)", []), cases.get("T(6)", [])
    if not (one and six and copies):
        return []
    surplus = bench_engine.differences_ms(six, one)
    n_bytes = six[0].facts["expert_bytes"] - one[0].facts["expert_bytes"]
    speeds = bench_engine.rates(copies)
    rows = bench_engine.spread("copies of memory", "GB/s", [speed / 1e9 for speed in speeds])
    note = f"{n_bytes / 1e6:,.1f} MB of experts more"
    rows += bench_engine.spread("T(6) - T(1)", "ms", surplus, note)
    if n_bytes:
        reading_ms = 1e3 * n_bytes / statistics.median(speeds)
        shares = [ms / reading_ms for ms in surplus]
        case = "(T(6) - T(1)) / reading those at that speed"
        note = f"no bar here: {BAR} is for Flash's sizes on a GPU"
        found = bench_engine.spread(case, "x", shares, note)
        if n_bytes >= JUDGED_BYTES:
            is_missed = any(row.median > BAR for row in found)
            found = bench_engine.judged(found, f"bar {BAR}", is_missed=is_missed)
        rows += found
    return rows


BENCH = Bench(name="verify", title="passes over 1 to 8 rows", samples=_samples, rows=_rows)
