"""`ds4chat bench WHAT`: the figures that this program promises, measured on this machine.

Exit status: 0 within the bar, 1 over it, 2 wrong arguments.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ds4chat.cli import (
    bench_decode,
    bench_engine,
    bench_kernels,
    bench_launches,
    bench_open,
    bench_prefill,
    bench_spec,
    bench_ui,
    bench_verify,
)
from ds4chat.cli.amounts import MAX_REPEAT, MAX_TOKENS, whole
from ds4chat.cli.parser import Parser

_OF_A_MODEL = {
    module.BENCH.name: module
    for module in (bench_prefill, bench_decode, bench_verify, bench_spec, bench_launches)
}


def run(argv: Sequence[str]) -> int:
    """Run one benchmark and print its result."""
    options = make_parser().parse_args(argv)
    if options.what in _OF_A_MODEL:
        return bench_engine.run(_OF_A_MODEL[options.what].BENCH, options)
    if options.what == "kernels":
        return bench_kernels.run(options)
    if options.what in ("ui", "snapshot"):
        bench_engine.check_files(options.model, options.support)
    if options.what == "ui" and options.against_json:
        from ds4chat.cli import bench_ui_json

        result = bench_ui_json.bench_against_json(options)
        text = bench_ui_json.render(result)
    elif options.what == "ui":
        result = bench_ui.bench_ui(options.tokens, options.tps, options.keys, options.size)
        text = bench_ui.render(result)
    elif options.what == "snapshot":
        from ds4chat.engine.host_open import use_fast_products

        use_fast_products()  # before the import of MLX, as in the chat
        from ds4chat.cli import bench_snapshot

        result = bench_snapshot.bench_snapshot(options.tokens, options.model, options.support)
        text = bench_snapshot.render(result)
    else:
        result = bench_open.bench_open(options.repeat)
        text = bench_open.render(result)
    print(json.dumps(result, indent=2) if options.json else text)
    return 0 if result["holds"] else 1


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(prog="ds4chat bench", description="Measure this machine.")
    kinds = parser.add_kinds()
    opening = kinds.add_parser("open", help="open a model file of Flash's size")
    opening.add_argument(
        "--repeat", type=whole(1, MAX_REPEAT), default=5, metavar="N",
        help="how often (default 5)",
    )  # fmt: skip
    opening.add_argument("--json", action="store_true", help="print JSON")
    snapshot = kinds.add_parser("snapshot", help="save and restore sessions")
    snapshot.add_argument(
        "--tokens", type=whole(1, MAX_TOKENS), nargs="+", default=[1000, 3500, 10_000],
        metavar="N", help="sizes of the sessions (default 1000 3500 10000)",
    )  # fmt: skip
    snapshot.add_argument("--model", help="a GGUF (default: a small made-up model)")
    snapshot.add_argument("--support", help="its support file")
    snapshot.add_argument("--json", action="store_true", help="print JSON")
    bench_ui.add_parser(kinds.add_parser("ui", help="time from key to screen"))
    bench_kernels.add_parser(kinds.add_parser("kernels", help=bench_kernels.TITLE))
    for name, module in _OF_A_MODEL.items():
        module.add_parser(kinds.add_parser(name, help=module.BENCH.title))
    return parser
