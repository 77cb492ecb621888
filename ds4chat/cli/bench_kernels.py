"""`ds4chat bench kernels`: every product of a decode step, one by one.

At the shapes and in the formats of a model file, whose data is not read, or of the published
2-bit Flash file. What counts is the share of the bandwidth that this device copies with; the
bars are for Flash's sizes on a GPU and judged only there.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ds4chat.cli import bench_engine
from ds4chat.cli.amounts import MAX_REPEAT, whole
from ds4chat.errors import SettingsError
from ds4chat.sizes import size

if TYPE_CHECKING:
    from ds4chat.engine.fit import Memory
    from ds4chat.engine.kernel_runs import Timing
    from ds4chat.engine.kernel_weights import Product, Setting

TITLE = "products of a decode step, one by one"
STEP_BAR, LARGE_BAR = 0.55, 0.70
LARGE_BYTES = 30 * 10**6
_COPIES_MB = {"cpu": 32}  # elsewhere 1024
_BANDWIDTH_BYTES = {"cpu": 64 << 20}  # elsewhere 2 << 30
_BANDWIDTH_SHARE = 8  # of the memory: a copy is timed with five times as much


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    add = parser.add_argument
    add("-m", "--model", help="take shapes and formats of this GGUF (default: the bundled)")
    add("--shapes", choices=("model", "flash"), default="model",
        help="flash: the published 2-bit file's, without a file")  # fmt: skip
    add("--backend", choices=("auto", "metal", "cuda", "cpu"), default="auto")
    add("--rows", type=whole(1, 8), nargs="+", default=list(range(1, 9)), metavar="N",
        help="rows of a launch (default 1 to 8)")  # fmt: skip
    add("--only", default="", metavar="TEXT", help="products whose name or format has TEXT")
    add(
        "--repeat",
        type=whole(1, MAX_REPEAT),
        default=5,
        metavar="N",
        help="timed runs (default 5)",
    )
    add("--launches", type=whole(1, 100_000), default=32, metavar="N",
        help="of a run (default 32; fewer on a cpu where they take long)")  # fmt: skip
    add("--megabytes", type=whole(1, 1_000_000), metavar="N",
        help="weights in rotation, at least 8 copies, of what no cpu cache holds 2 "
        "(default 1024; cpu 32)")  # fmt: skip
    add("--json", action="store_true", help="print JSON")
    add("--csv", action="store_true", help="print CSV")
    parser.set_defaults(support=None)


def run(options: argparse.Namespace) -> int:
    """Time everything that was asked for and print it; returns the exit status.

    Raises:
        Ds4Error: the model cannot be opened, nothing of that name is multiplied, or there is
            too little memory.
    """
    if options.backend in ("auto", "cpu"):
        from ds4chat.engine.host_open import use_fast_products

        use_fast_products()  # before the import of MLX, as in the chat
    from ds4chat.engine.backend import choose_backend
    from ds4chat.engine.kernel_runs import copy_bandwidth, upload_bandwidth
    from ds4chat.engine.kernel_weights import Setting
    from ds4chat.engine.memory import memory_of
    from ds4chat.ops import dispatch

    backend = choose_backend(options.backend)
    where, products = _products(options)
    setting = Setting(
        copies_bytes=(options.megabytes or _COPIES_MB.get(backend.name, 1024)) << 20,
        n_launches=options.launches,
        repeat=options.repeat,
        dtype=backend.storage.dtype,
        keeps_blocks=backend.storage.keeps_blocks,
    )
    memory = memory_of(backend.name)
    needed = check_memory(products, setting, memory)
    _tell(f"kernels: {where}; {backend.device}; {len(products)} products, up to {size(needed)}")
    n_bytes = _BANDWIDTH_BYTES.get(backend.name, 2 << 30)
    if memory is not None:
        n_bytes = min(n_bytes, memory.usable // _BANDWIDTH_SHARE)
    result: dict[str, Any] = {
        "bench": "kernels",
        "shapes": where,
        "backend": backend.name,
        "device": backend.device,
        "kept": "blocks" if setting.keeps_blocks else "float32",
        "copy_gbps": copy_bandwidth(n_bytes, options.repeat) / 1e9,
        "upload_gbps": upload_bandwidth(n_bytes // 4, options.repeat) / 1e9,
    }
    timings = list(_told(_timings(products, options.rows, setting)))
    result["rows"] = _lines(timings, result["copy_gbps"])
    result["summary"] = _summary(timings, result["copy_gbps"])
    result["over"] = _over(result, is_whole=not options.only)
    result["fallbacks"] = dict(dispatch.current().fallbacks)
    print(_shown(result, options), end="")
    return bench_engine.EXIT_FAILED if any(result["over"].values()) else bench_engine.EXIT_OK


def check_memory(products: Sequence[Product], setting: Setting, memory: Memory | None) -> int:
    """The bytes that the largest product takes while it is timed.

    Raises:
        SettingsError: they are more than `memory` has free.
    """
    from ds4chat.engine.kernel_weights import most_bytes

    largest = max(products, key=lambda product: most_bytes(product, setting))
    needed = most_bytes(largest, setting)
    if memory is not None and needed > memory.usable:
        name = f"{largest.name} ({largest.quant.name})"
        raise SettingsError(
            f"{name} takes up to {size(needed)} while it is timed, and {memory.what} has "
            f"{size(memory.usable)} free of {size(memory.total)}",
            "Leave it out with --only TEXT, or take fewer --megabytes.",
        )
    return needed


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _products(options: argparse.Namespace) -> tuple[str, list[Product]]:
    from ds4chat.cli.bench_open import FLASH, published_format
    from ds4chat.engine.kernel_runs import products_of

    if options.shapes == "flash":
        where, products = "Flash, 2-bit", products_of(FLASH, published_format)
    else:
        where, products = _of_file(options)
    word = options.only.lower()
    chosen = [p for p in products if word in p.name.lower() or word in p.quant.name.lower()]
    if not chosen:
        names = ", ".join(dict.fromkeys(p.name for p in products))
        raise SettingsError(f"--only {options.only}: no such product", f"There are {names}.")
    return where, chosen


def _of_file(options: argparse.Namespace) -> tuple[str, list[Product]]:
    from ds4chat.engine.kernel_runs import products_of
    from ds4chat.formats.gguf import GgufFile
    from ds4chat.formats.quants import QuantFormat
    from ds4chat.model.binding import Place, bind_target
    from ds4chat.model.metadata import read_target_config

    model, _ = bench_engine.files(options)
    with GgufFile.open(model) as gguf:
        config = read_target_config(gguf)
        entries = bind_target(gguf, config)

        def format_of(place: Place) -> QuantFormat:
            quant = entries[place.name].quant
            assert quant is not None  # bound: a type that can be decoded
            return quant

        return config.name, products_of(config, format_of)


def _timings(products: list[Product], rows: list[int], setting: Setting) -> Iterator[Timing]:
    from ds4chat.engine.kernel_runs import time_product
    from ds4chat.engine.kernel_weights import most_bytes

    for product in products:
        name = f"{product.name} {product.quant.name}"
        _tell(f"  {name:<44} up to {size(most_bytes(product, setting))} ..")
        yield from time_product(product, rows, setting)


def _told(timings: Iterator[Timing]) -> Iterator[Timing]:
    """The same, with a line of progress each; Ctrl+C ends it."""
    try:
        for timing in timings:
            seconds = statistics.median(timing.seconds)
            name = f"{timing.product.name} {timing.product.quant.name} {timing.who}"
            _tell(f"  {name:<44} {timing.rows} rows {1e6 * seconds:9.1f} us")
            yield timing
    except KeyboardInterrupt:
        _tell("interrupted: what follows is what there is")


def _lines(timings: list[Timing], copy_gbps: float) -> list[dict[str, Any]]:
    """One line for each product and row count; stock times stand beside ours."""
    from ds4chat.engine.kernel_runs import OWN, STOCK

    stock = {
        (id(t.product), t.rows): 1e6 * statistics.median(t.seconds)
        for t in timings
        if t.who == STOCK
    }
    lines = []
    for t in timings:
        if t.who != OWN:
            continue
        seconds = statistics.median(t.seconds)
        gbps = t.n_bytes / seconds / 1e9
        lines.append(
            {
                "name": t.product.name,
                "format": t.product.quant.name,
                "n_in": t.product.n_in,
                "n_out": t.product.n_out,
                "per_step": t.product.per_step,
                "rows": t.rows,
                "us": 1e6 * seconds,
                "us_least": 1e6 * min(t.seconds),
                "us_greatest": 1e6 * max(t.seconds),
                "megabytes": t.n_bytes / 1e6,
                "gbps": gbps,
                "share": gbps / copy_gbps,
                "stock_us": stock.get((id(t.product), t.rows)),
            }
        )
    return lines


def _summary(timings: list[Timing], copy_gbps: float) -> dict[str, float]:
    """A whole step of one row, and the worst of the large weights, against the bars."""
    from ds4chat.engine.kernel_runs import OWN

    single = [t for t in timings if t.who == OWN and t.rows == 1]
    if not single:
        return {}
    n_bytes = sum(t.product.per_step * t.n_bytes for t in single)
    seconds = sum(t.product.per_step * statistics.median(t.seconds) for t in single)
    large = [
        t.n_bytes / statistics.median(t.seconds) / 1e9 / copy_gbps
        for t in single
        if t.n_bytes >= LARGE_BYTES
    ]
    found = {
        "step_ms": 1e3 * seconds,
        "step_megabytes": n_bytes / 1e6,
        "step_share": n_bytes / seconds / 1e9 / copy_gbps,
    }
    return found | ({"large_share_least": min(large)} if large else {})


def _over(result: dict[str, Any], *, is_whole: bool) -> dict[str, bool]:
    """Which bars are missed: those that are for this run, by the name of their figure."""
    summary = result["summary"]
    if result["backend"] == "cpu" or "large_share_least" not in summary:
        return {}
    over = {"large_share_least": summary["large_share_least"] < LARGE_BAR}
    if is_whole:
        over["step_share"] = summary["step_share"] < STEP_BAR
    return over


def _shown(result: dict[str, Any], options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps(result, indent=2) + "\n"
    if options.csv:
        return _as_csv(result["rows"])
    lines = [
        f"kernels: {result['shapes']}; {result['backend']}, {result['device']}; copies at "
        f"{result['copy_gbps']:.1f} GB/s, uploads at {result['upload_gbps']:.1f} GB/s",
        *_kept_words(result["kept"]),
        f"  {'product':<26} {'format':<8} {'in x out':>14} {'a step':>6} {'rows':>4} "
        f"{'us':>9} {'MB':>9} {'GB/s':>8} {'of copy':>7} {'stock us':>9}",
    ]
    lines += [_as_line(row) for row in result["rows"]]
    lines += _verdicts(result["summary"], result["over"])
    lines += [f"no kernel {name}: {why}" for name, why in result["fallbacks"].items()]
    return "\n".join(lines) + "\n"


def _as_line(row: dict[str, Any]) -> str:
    shape = f"{row['n_in']} x {row['n_out']}"
    stock = "-" if row["stock_us"] is None else f"{row['stock_us']:.1f}"
    return (
        f"  {row['name']:<26} {row['format']:<8} {shape:>14} {row['per_step']:6d} "
        f"{row['rows']:4d} {row['us']:9.1f} {row['megabytes']:9.3f} {row['gbps']:8.1f} "
        f"{row['share']:7.1%} {stock:>9}"
    )


def _kept_words(kept: str) -> list[str]:
    if kept == "blocks":
        return []
    return ["weights unpacked to float32, as the chat keeps them here; MB are those of float32"]


def _verdicts(summary: dict[str, float], over: dict[str, bool]) -> list[str]:
    """The two figures, and of a bar that is for this run whether they keep it."""
    if not summary:
        return []
    lines = [
        f"the products of a step of one row: {summary['step_megabytes']:,.1f} MB in "
        f"{summary['step_ms']:.3f} ms, {summary['step_share']:.1%} of the copy bandwidth"
        f"{_bar_words(over.get('step_share'), STEP_BAR)}"
    ]
    if "large_share_least" in summary:
        lines.append(
            f"the slowest weight of {LARGE_BYTES // 10**6} MB or more: "
            f"{summary['large_share_least']:.1%}"
            f"{_bar_words(over.get('large_share_least'), LARGE_BAR)}"
        )
    if not over:
        lines.append(
            f"no bar here: {STEP_BAR:.0%} and {LARGE_BAR:.0%} are for Flash's sizes on a GPU"
        )
    return lines


def _bar_words(is_missed: bool | None, bar: float) -> str:
    if is_missed is None:
        return ""
    return f" ({'UNDER the' if is_missed else 'within the'} bar of {bar:.0%})"


def _as_csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def main() -> int:
    """`python -m ds4chat.cli.bench_kernels`."""
    parser = argparse.ArgumentParser(prog="bench_kernels", description=TITLE)
    add_parser(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
