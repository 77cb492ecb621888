"""`ds4chat bench ui`: how fast the screen answers while a reply streams.

The real chat runs in a pseudo-terminal over a scripted engine, with transcripts of several
lengths. Keys of characters never used before are sent one by one; the time until the
terminal is told to draw one is the time from key to screen. Beside it stand the time in which
the screen's thread worked, and the time in which something was ready and got no processor.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ds4chat.cli.amounts import MAX_REPEAT, MAX_TOKENS, number, pair, terminal_size, whole
from ds4chat.cli.bench_pty import LOST_S, KeyTime, Terminal

BAR_S = 0.050  # p99 from key to screen, at every length
READY = "the bench begins"
_FIRST_KEY = 0x4E00  # characters that are in no text of the bench
_MAX_KEYS = 20_000  # so many there are
_PAUSE_S = (0.02, 0.09)  # between keys
_START_S = 120.0
_SETTLE_S = 2.0  # from the start of the reply to the first key


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--tokens", type=whole(0, MAX_TOKENS), nargs="+", default=[1_000, 10_000, 100_000],
        metavar="N", help="older tokens in the transcript (default 1000 10000 100000)",
    )  # fmt: skip
    parser.add_argument(
        "--tps", type=number(1, 100_000), default=200.0, metavar="F",
        help="tokens a second (default 200)",
    )  # fmt: skip
    parser.add_argument(
        "--keys", type=whole(1, _MAX_KEYS), default=100, metavar="N",
        help="keys a length (default 100)",
    )  # fmt: skip
    parser.add_argument(
        "--size", type=terminal_size, default="120x45", help="columns x rows (default 120x45)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--against-json", action="store_true",
        help="instead: a reply on the screen against the same one with --json",
    )  # fmt: skip
    parser.add_argument("-m", "--model", help="its GGUF (default: the bundled pair)")
    parser.add_argument("--support", help="its support file; none: without")
    parser.add_argument(
        "--length", type=whole(1, MAX_TOKENS), default=400, metavar="N",
        help="its tokens (default 400)",
    )  # fmt: skip
    parser.add_argument(
        "--runs", type=whole(1, MAX_REPEAT), default=10, metavar="N",
        help="pairs of runs (default 10)",
    )  # fmt: skip


def bench_ui(tokens: Sequence[int], tps: float, n_keys: int, size: str) -> dict[str, Any]:
    """Measure every length; times in seconds, sizes in bytes."""
    runs = [_run(n, tps, n_keys, pair(size)) for n in tokens]
    return {
        "tps": tps,
        "size": size,
        "runs": runs,
        "bar_s": BAR_S,
        "load_average": os.getloadavg()[0],
        "holds": all(run["key_p99_s"] < BAR_S for run in runs),
        "own_holds": all(run["own_p99_s"] < BAR_S for run in runs),
    }


def render(result: dict[str, Any]) -> str:
    """The result for a person."""
    lines = [
        f"{result['tps']:g} tokens a second at {result['size']}, "
        f"load {result['load_average']:.1f}; milliseconds, p50 and p99",
        f"{'older tokens':>13}{'key to screen':>17}{'own work':>17}{'waited':>17}{'frame':>17}"
        f"{'CPU':>6}{'memory':>10}",
    ]
    for run in result["runs"]:
        ranks = "".join(_pair(run, name) for name in ("key", "own", "waited", "frame"))
        lost = f"  {run['n_lost']} keys lost" if run["n_lost"] else ""
        lines.append(
            f"{run['tokens']:>13,}{ranks}{run['cpu_share']:>6.0%}"
            f"{run['rss_bytes'] / 1e6:>7.0f} MB{lost}"
        )
    return "\n".join([*lines, *_verdict(result)])


def _verdict(result: dict[str, Any]) -> list[str]:
    bar = f"the bar of {result['bar_s'] * 1e3:.0f} ms for p99 from key to screen"
    if result["holds"]:
        return [f"within {bar}"]
    over = [run["tokens"] for run in result["runs"] if run["key_p99_s"] >= result["bar_s"]]
    bar += f", at {', '.join(f'{n:,}' for n in over)} older tokens"
    if not result["own_holds"]:
        return [f"over {bar}, and so is the screen's own work"]
    return [
        f"over {bar}; the screen's own work is within it",
        "(waited: ready to run while the machine ran something else; try when it is idle)",
    ]


def _pair(run: dict[str, Any], name: str) -> str:
    return f"{run[f'{name}_p50_s'] * 1e3:>9.1f}{run[f'{name}_p99_s'] * 1e3:>8.1f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of all do not exceed (nearest rank); 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0


def _run(n_tokens: int, tps: float, n_keys: int, size: tuple[int, int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "frames.json"
        command = json.dumps({"tokens": n_tokens, "tps": tps, "report": str(report)})
        terminal = Terminal(["-m", "ds4chat.cli.bench_ui_child", command], size)
        try:
            terminal.wait_for(READY.encode(), _START_S)
            terminal.drain(_SETTLE_S)
            started, cpu_s = time.monotonic(), terminal.cpu_seconds()
            keys = _type(terminal, n_keys)
            wall_s, cpu_s = time.monotonic() - started, terminal.cpu_seconds() - cpu_s
            rss = terminal.quit()
        finally:
            terminal.close()
        frames: list[float] = json.loads(report.read_text()) if report.exists() else []
    return {
        "tokens": n_tokens,
        "n_keys": n_keys,
        "n_lost": sum(key.wall_s >= LOST_S for key in keys),
        **_ranks("key", [key.wall_s for key in keys]),
        **_ranks("own", [key.ran_s for key in keys]),
        **_ranks("waited", [min(key.waited_s, key.wall_s) for key in keys]),
        "n_frames": len(frames),
        **_ranks("frame", frames),
        "cpu_share": cpu_s / wall_s if wall_s else 0.0,
        "rss_bytes": rss,
    }


def _type(terminal: Terminal, n_keys: int) -> list[KeyTime]:
    """Send keys of characters never used before, with the pauses of a person."""
    rng = random.Random(1)
    keys = []
    for n in range(n_keys):
        terminal.drain(rng.uniform(*_PAUSE_S))
        keys.append(terminal.key(chr(_FIRST_KEY + n).encode()))
    return keys


def _ranks(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_p50_s": percentile(values, 0.5),
        f"{name}_p99_s": percentile(values, 0.99),
    }
