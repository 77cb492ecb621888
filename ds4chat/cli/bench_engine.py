"""What the benchmarks of a loaded model share: options, progress, medians, and three outputs.

Progress goes to standard error. Ctrl+C ends a benchmark with what it has.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds4chat import paths, settings
from ds4chat.cli import models
from ds4chat.cli.amounts import MAX_REPEAT, MAX_TOKENS, whole
from ds4chat.errors import SettingsError
from ds4chat.tui.race import machine

if TYPE_CHECKING:
    from ds4chat.engine.bench_runs import Sample
    from ds4chat.engine.engine import Engine

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 128 + signal.SIGINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: the median of `n` samples with the least and the greatest.

    `is_missed`: a bar is for this run, and the median does not keep it.
    """

    case: str
    unit: str
    median: float
    low: float
    high: float
    n: int
    note: str = ""
    is_missed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One benchmark: how its samples are made, and what is read out of them."""

    name: str
    title: str
    samples: Callable[[Engine, argparse.Namespace], Iterator[Sample]]
    rows: Callable[[list[Sample]], list[Row]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Flags that every such benchmark has."""
    add = parser.add_argument
    add("-m", "--model", help="a GGUF (default: the bundled pair)")
    add("--support", help="its support file (default: found beside it); none: without")
    add("--backend", choices=("auto", "metal", "cuda", "cpu"), default="auto")
    add("-c", "--ctx", type=whole(16, MAX_TOKENS), metavar="N", help="context in tokens")
    add("--no-kv-fp8", action="store_true", help="without the FP8 and FP4 round trips")
    add(
        "--repeat",
        type=whole(1, MAX_REPEAT),
        default=5,
        metavar="N",
        help="timed runs (default 5)",
    )
    add("--json", action="store_true", help="print JSON, every sample included")
    add("--csv", action="store_true", help="print CSV")


def check_files(model: str | None, support: str | None) -> None:
    """Refuse a named file that cannot be read. Raises SettingsError."""
    if model is not None:
        models.check_readable(Path(model), "model")
    if support not in (None, models.NO_SUPPORT):
        models.check_readable(Path(support), "support file")


def run(bench: Bench, options: argparse.Namespace) -> int:
    """Open the model, take samples, print; returns the exit status.

    Raises:
        Ds4Error: the model cannot be opened, or the runs do not fit into its context.
    """
    from ds4chat.engine.host_open import use_fast_products

    if options.backend in ("auto", "cpu"):
        use_fast_products()  # before the import of MLX, as in the chat
    from ds4chat.engine.engine import Engine

    model, support = files(options)
    with Engine.open(
        model,
        support,
        backend=options.backend,
        ctx=options.ctx,
        kv_fp8=not options.no_kv_fp8,
        end_ids=(),
    ) as engine:
        print(f"{bench.title}: {engine.info.name}, {engine.info.device}", file=sys.stderr)
        samples, was_interrupted = _collect(bench.samples(engine, options))
        rows = bench.rows([sample for sample in samples if not sample.is_warm_up])
        result = _result(bench, engine, samples, rows, was_interrupted=was_interrupted)
    print(_shown(result, rows, options), end="")
    if was_interrupted:
        return EXIT_INTERRUPTED
    differs = any(sample.is_identical is False for sample in samples)
    return EXIT_FAILED if differs or any(row.is_missed for row in rows) else EXIT_OK


def judged(rows: list[Row], words: str, *, is_missed: bool) -> list[Row]:
    """The same with their bar, and whether it is missed, in the note."""
    note = f"{'MISSES the' if is_missed else 'keeps the'} {words}"
    return [dataclasses.replace(row, note=note, is_missed=is_missed) for row in rows]


def files(options: argparse.Namespace) -> tuple[Path, Path | None]:
    """The model and its support file that the options, settings or the bundle name."""
    given = {"model": options.model, "support": options.support}
    dirs = paths.UserDirs.from_variables(settings.path_variables())
    asked = {name: value for name, value in given.items() if value is not None}
    pair = models.choose(settings.load(asked, config_file=dirs.config_file), paths.nano_dir())
    if pair is None:
        raise SettingsError("no model was named and none is bundled", "Name one with -m FILE.")
    return pair.model, pair.support


def _collect(samples: Iterable[Sample]) -> tuple[list[Sample], bool]:
    found: list[Sample] = []
    try:
        for sample in samples:
            found.append(sample)
            print(_progress(sample), file=sys.stderr)
    except KeyboardInterrupt:
        return found, True
    return found, False


def _progress(sample: Sample) -> str:
    from ds4chat.engine.bench_runs import COPY

    run = "warm-up" if sample.is_warm_up else f"run {sample.run}"
    if sample.case == COPY:  # its units are bytes
        return f"  {run:<8} {sample.case:<38} {rate(sample) / 1e9:9.3f} GB/s"
    return f"  {run:<8} {sample.case:<38} {1e3 * sample.seconds / sample.n_units:9.3f} ms each"


def spread(case: str, unit: str, values: list[float], note: str = "") -> list[Row]:
    """The row of some values; none without any."""
    if not values:
        return []
    row = Row(
        case=case,
        unit=unit,
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        n=len(values),
        note=note,
    )
    return [row]


def by_case(samples: list[Sample]) -> dict[str, list[Sample]]:
    """Samples of each case, cases in the order of their first sample."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.case, []).append(sample)
    return found


def rates(samples: list[Sample]) -> list[float]:
    """Units a second of each sample."""
    return [sample.n_units / sample.seconds for sample in samples]


def each_ms(samples: list[Sample]) -> list[float]:
    """Milliseconds a unit of each sample."""
    return [1e3 * sample.seconds / sample.n_units for sample in samples]


def paired(
    ours: list[Sample], theirs: list[Sample], value: Callable[[Sample], float]
) -> list[float]:
    """Ratio of two cases within each run that has both."""
    other = {sample.run: value(sample) for sample in theirs}
    return [value(s) / other[s.run] for s in ours if s.run in other]


def differences_ms(ours: list[Sample], theirs: list[Sample]) -> list[float]:
    """Milliseconds by which `ours` takes longer within each run that has both."""
    other = {sample.run: sample.seconds for sample in theirs}
    return [1e3 * (s.seconds - other[s.run]) for s in ours if s.run in other]


def rate(sample: Sample) -> float:
    """Units a second."""
    return sample.n_units / sample.seconds


def _result(
    bench: Bench,
    engine: Engine,
    samples: list[Sample],
    rows: list[Row],
    *,
    was_interrupted: bool,
) -> dict[str, Any]:
    return {
        "bench": bench.name,
        "model": dataclasses.asdict(engine.info),
        "machine": dataclasses.asdict(machine.look()),
        "interrupted": was_interrupted,
        "rows": [dataclasses.asdict(row) for row in rows],
        "samples": [dataclasses.asdict(sample) for sample in samples],
    }


def _shown(result: dict[str, Any], rows: list[Row], options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps(result, indent=2) + "\n"
    return _as_csv(rows) if options.csv else _as_table(result, rows)


def _as_csv(rows: list[Row]) -> str:
    out = io.StringIO()
    names = [field.name for field in dataclasses.fields(Row)]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(row) for row in rows)
    return out.getvalue()


def _as_table(result: dict[str, Any], rows: list[Row]) -> str:
    model, looked = result["model"], result["machine"]
    lines = [
        f"{result['bench']}: {model['name']} ({model['quant']}), {model['backend']}, "
        f"{model['device']}, {model['activation_dtype']}; MLX {looked['mlx']}",
        f"  {'':<44} {'median':>10} {'least':>10} {'greatest':>10}    n",
    ]
    lines += [
        f"  {row.case:<44} {row.median:10.3f} {row.low:10.3f} {row.high:10.3f} "
        f"{row.n:4d}  {row.unit}  {row.note}".rstrip()
        for row in rows
    ]
    if not rows:
        lines.append("  nothing was measured")
    if result["interrupted"]:
        lines.append("interrupted: these are the runs until then")
    return "\n".join(lines) + "\n"
