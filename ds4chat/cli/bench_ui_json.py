"""`ds4chat bench ui --against-json`: what the screen costs the model.

The same reply is generated in the chat, in a pseudo-terminal, and by `--json`, in turn. The
rates compared are the engine's own, tokens over the seconds that it decoded for: what the
screen takes of the machine slows them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from ds4chat.cli.amounts import pair
from ds4chat.cli.bench_pty import Terminal
from ds4chat.errors import EngineError
from ds4chat.protocol.types import Usage
from ds4chat.store.library import Library

BAR = 0.98  # the median ratio of the rates, screen over --json
PROMPT = "Tell a long story."
_READY = "Ask something"
_START_S = 300.0
_REPLY_S = 900.0
_LOOK_S = 0.25
_END = b'"kind":"finished"'


class Rate(NamedTuple):
    """A run: tokens a second, and CPU seconds of the screen's process."""

    tps: float
    cpu_s: float


def bench_against_json(options: argparse.Namespace) -> dict[str, Any]:
    """Run both by turns; the first goes first in every other pair.

    Raises:
        EngineError: a run brought no reply.
    """
    runs = []
    for number in range(options.runs):
        kinds = ("screen", "json") if number % 2 == 0 else ("json", "screen")
        found = {
            kind: _screen(options, pair(options.size)) if kind == "screen" else _json(options)
            for kind in kinds
        }
        runs.append(
            {
                "screen_tps": found["screen"].tps,
                "json_tps": found["json"].tps,
                "ratio": found["screen"].tps / found["json"].tps,
                "screen_cpu_s": found["screen"].cpu_s,
            }
        )
        print(f"  run {number + 1}: {_line(runs[-1])}", file=sys.stderr)
    ratio = statistics.median(run["ratio"] for run in runs)
    return {
        "n_tokens": options.length,
        "size": options.size,
        "runs": runs,
        "median_ratio": ratio,
        "bar": BAR,
        "load_average": os.getloadavg()[0],
        "holds": ratio >= BAR,
    }


def render(result: dict[str, Any]) -> str:
    """The result for a person."""
    runs = result["runs"]
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    low, high = min(run["ratio"] for run in runs), max(run["ratio"] for run in runs)
    verdict = "within" if result["holds"] else "under"
    return "\n".join(
        [
            f"{len(runs)} pairs of {result['n_tokens']} tokens at {result['size']}, "
            f"load {result['load_average']:.1f}",
            f"medians: {_line(middle)}",
            f"ratio {result['median_ratio']:.3f} ({low:.3f} to {high:.3f}): "
            f"{verdict} the bar of {result['bar']:.2f}",
        ]
    )


def _line(run: dict[str, float]) -> str:
    return (
        f"screen {run['screen_tps']:.1f} tok/s, --json {run['json_tps']:.1f} tok/s, "
        f"ratio {run['ratio']:.3f}, screen {run['screen_cpu_s']:.2f} s of CPU"
    )


def _words(options: argparse.Namespace) -> list[str]:
    """The command line that both share."""
    words = ["-m", "ds4chat", "--ignore-eos", "--nothink", "--temp", "0", "--no-wait"]
    words += ["-n", str(options.length)]
    for flag, value in (("--model", options.model), ("--support", options.support)):
        words += [flag, value] if value else []
    return words


def _json(options: argparse.Namespace) -> Rate:
    command = [sys.executable, *_words(options), "--json", "-p", PROMPT]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    last = done.stdout.splitlines()[-1:] or [b"{}"]
    receipt = json.loads(last[0])
    if receipt.get("event") != "receipt":
        raise EngineError("the run with --json brought no reply", last[0].decode())
    usage = receipt["usage"]
    return Rate(usage["n_tokens"] / usage["decode_s"], 0.0)


def _screen(options: argparse.Namespace, size: tuple[int, int]) -> Rate:
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal([*_words(options), "--sessions", folder], size)
        try:
            terminal.wait_for(_READY.encode(), _START_S)
            terminal.send(PROMPT.encode())
            terminal.drain(_LOOK_S)  # a return in one breath with the text would be a paste
            cpu_s = terminal.cpu_seconds()
            terminal.send(b"\r")
            _await_end(terminal, Path(folder))
            cpu_s = terminal.cpu_seconds() - cpu_s
            terminal.quit()
        finally:
            terminal.close()
        usage = _usage(Path(folder))
    return Rate(usage.n_tokens / usage.decode_s, cpu_s)


def _await_end(terminal: Terminal, folder: Path) -> None:
    """Read the terminal until the transcript on the disk says that the reply ended."""
    deadline = time.monotonic() + _REPLY_S
    while time.monotonic() < deadline:
        terminal.drain(_LOOK_S)
        if any(_END in path.read_bytes()[-65536:] for path in folder.glob("*/*.jsonl")):
            return
    raise EngineError("the chat brought no reply in time", "Try fewer tokens: --length 100.")


def _usage(folder: Path) -> Usage:
    library = Library(folder)
    name = library.latest()
    leaf = library.read(name).tree.leaf if name is not None else None
    if leaf is None or leaf.finished is None or not leaf.finished.usage.n_tokens:
        raise EngineError("the chat brought no reply", "ds4chat --model FILE says why.")
    return leaf.finished.usage
