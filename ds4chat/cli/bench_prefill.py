"""`ds4chat bench prefill`: how fast prompts of given sizes are read."""

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
        "--tokens", type=whole(1, MAX_TOKENS), nargs="+", default=[128, 512, 2048],
        metavar="N", help="prompt sizes (default 128 512 2048)",
    )  # fmt: skip
    bench_engine.add_options(parser)


def _samples(engine: Engine, options: argparse.Namespace) -> Iterator[Sample]:
    from ds4chat.engine import bench_runs

    return bench_runs.prefill(engine, options.tokens, options.repeat)


def _rows(samples: list[Sample]) -> list[Row]:
    rows: list[Row] = []
    for case, found in bench_engine.by_case(samples).items():
        rows += bench_engine.spread(case, "tok/s", bench_engine.rates(found))
    return rows


BENCH = Bench(name="prefill", title="prompts of fresh sessions", samples=_samples, rows=_rows)
