"""`ds4chat bench ui`: how fast the screen answers while a reply streams.

The real chat runs in a pseudo-terminal over a scripted engine, with transcripts of several
lengths. Keys of characters never used before are sent one by one; the time until the
terminal is told to draw one is the time from key to screen.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import select
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BAR_S = 0.050  # p99 from key to screen at the longest transcript
READY = "the bench begins"
LOST_S = 5.0  # a key that is not drawn by then is lost
_FIRST_KEY = 0x4E00  # characters that are in no text of the bench
_PAUSE_S = (0.02, 0.09)  # between keys
_START_S = 120.0
_SETTLE_S = 2.0  # from the start of the reply to the first key


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[0, 10_000, 100_000], metavar="N",
        help="older tokens in the transcript (default 0 10000 100000)",
    )  # fmt: skip
    parser.add_argument(
        "--tps", type=float, default=200.0, help="tokens a second (default 200)"
    )
    parser.add_argument("--keys", type=int, default=100, help="keys a length (default 100)")
    parser.add_argument("--size", default="120x45", help="columns x rows (default 120x45)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def bench_ui(tokens: Sequence[int], tps: float, n_keys: int, size: str) -> dict[str, Any]:
    """Measure every length; times in seconds, sizes in bytes."""
    columns, _, rows = size.partition("x")
    runs = [_run(n, tps, n_keys, (int(columns), int(rows))) for n in tokens]
    worst = max(runs, key=lambda run: int(run["tokens"]))
    return {
        "tps": tps,
        "size": size,
        "runs": runs,
        "bar_s": BAR_S,
        "load_average": os.getloadavg()[0],
        "holds": worst["key_p99_s"] < BAR_S,
    }


def render(result: dict[str, Any]) -> str:
    """The result for a person."""
    lines = [
        f"{result['tps']:g} tokens a second at {result['size']}, "
        f"load {result['load_average']:.1f}",
        " older tokens   key p50   key p99  frame p50 frame p99    CPU   memory",
    ]
    lines += [
        f"{run['tokens']:>13,}{_ms(run['key_p50_s'])}{_ms(run['key_p99_s'])}"
        f"{_ms(run['frame_p50_s'])}{_ms(run['frame_p99_s'])}"
        f"{run['cpu_share']:>7.0%}{run['rss_bytes'] / 1e6:>6.0f} MB"
        + (f"  {run['n_lost']} keys lost" if run["n_lost"] else "")
        for run in result["runs"]
    ]
    verdict = "within" if result["holds"] else "over"
    lines.append(
        f"{verdict} the bar of {result['bar_s'] * 1e3:.0f} ms for p99 from key to screen"
    )
    return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:>7.1f} ms"


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of all do not exceed (nearest rank); 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0


def _run(n_tokens: int, tps: float, n_keys: int, size: tuple[int, int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "frames.json"
        command = json.dumps({"tokens": n_tokens, "tps": tps, "report": str(report)})
        terminal = _Terminal(command, size)
        try:
            terminal.wait_for(READY.encode(), _START_S)
            latencies, wall_s, cpu_s = terminal.type(n_keys)
            rss = terminal.quit()
        finally:
            terminal.close()
        frames: list[float] = json.loads(report.read_text()) if report.exists() else []
    return {
        "tokens": n_tokens,
        "n_keys": n_keys,
        "n_lost": sum(latency >= LOST_S for latency in latencies),
        "key_p50_s": percentile(latencies, 0.5),
        "key_p99_s": percentile(latencies, 0.99),
        "n_frames": len(frames),
        "frame_p50_s": percentile(frames, 0.5),
        "frame_p99_s": percentile(frames, 0.99),
        "cpu_share": cpu_s / wall_s if wall_s else 0.0,
        "rss_bytes": rss,
    }


class _Terminal:
    """The chat in a pseudo-terminal."""

    def __init__(self, command: str, size: tuple[int, int]) -> None:
        import fcntl
        import pty
        import termios

        argv = [sys.executable, "-m", "ds4chat.cli.bench_ui_child", command]
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            shape = struct.pack("HHHH", size[1], size[0], 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, shape)
            os.execv(sys.executable, argv)
        self._seen = b""
        self._has_ended = False

    def wait_for(self, wanted: bytes, seconds: float) -> bool:
        """Read until some bytes came, at most so long; whether they came."""
        deadline = time.monotonic() + seconds
        while wanted not in self._seen:
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                return False
        return True

    def type(self, n_keys: int) -> tuple[list[float], float, float]:
        """Send keys; seconds from each to the screen, and wall and CPU seconds of it all."""
        rng = random.Random(1)
        latencies = []
        self._drain(_SETTLE_S)
        started, cpu = time.monotonic(), self._cpu_seconds()
        for n in range(n_keys):
            self._drain(rng.uniform(*_PAUSE_S))
            key = chr(_FIRST_KEY + n).encode()
            self._seen = b""
            sent = time.monotonic()
            os.write(self._fd, key)
            is_drawn = self.wait_for(key, LOST_S)
            latencies.append(time.monotonic() - sent if is_drawn else LOST_S)
        return latencies, time.monotonic() - started, self._cpu_seconds() - cpu

    def quit(self) -> int:
        """End the chat; its largest resident size in bytes."""
        os.write(self._fd, b"\x11")
        while self._read(LOST_S):
            self._seen = b""
        usage = os.wait4(self._pid, 0)[2]
        self._has_ended = True
        return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def close(self) -> None:
        """End the process if it still runs, and free the terminal."""
        import signal

        if not self._has_ended:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def _drain(self, seconds: float) -> None:
        """Read for a while: a terminal draws all the time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)
            self._seen = b""

    def _read(self, seconds: float) -> bool:
        """Read once; False when the chat has ended or nothing came in time."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # Linux: the other side is closed
            return False
        self._seen = self._seen[-64:] + data
        return bool(data)

    def _cpu_seconds(self) -> float:
        """CPU time of the chat so far; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
