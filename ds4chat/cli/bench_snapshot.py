"""`ds4chat bench snapshot`: what saving and restoring a session costs, by its length.

Each session is saved whole into a fresh folder and restored; a short continuation of both must
be equal bit for bit. Files are read back from the system's cache.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ds4chat.cli.bench_model import write_small_model
from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from ds4chat.engine.snapshot_files import DiskFiles
from ds4chat.engine.snapshots import restore, take, write

BAR_TOKENS, BAR_RESTORE_S = 10_000, 1.0
"""A session of up to `BAR_TOKENS` is restored in less than `BAR_RESTORE_S`."""
BAR_WAIT_S = 0.05
"""The next prompt waits no longer than this for a snapshot."""
BAR_SIZE = 1.05
"""Bytes on the disk for each byte of the state."""

_REPEATS = 3
_CONTINUED = 8


def bench_snapshot(
    sizes: Sequence[int], model: str | None, support: str | None
) -> dict[str, Any]:
    """Save and restore sessions of `sizes` tokens.

    Returns:
        `runs` (one mapping for each size, times in seconds), `bytes_per_1000_tokens`, the bars,
        and `holds`.

    Raises:
        ModelFileError: the model cannot be used.
        ContextFullError: a size is above the model's context.
    """
    with tempfile.TemporaryDirectory(prefix="ds4chat-bench-") as name:
        folder = Path(name)
        if model is None:
            model = str(folder / "small.gguf")
            write_small_model(Path(model))
        with Engine.open(model, support, policy="fixed", ctx=None) as engine:
            session = engine.session()
            runs = [_measure(engine, session, n, folder) for n in sorted(set(sizes))]
            title = f"{engine.info.name} on {engine.info.backend}"
    return {
        "bench": "snapshot",
        "model": title,
        "runs": runs,
        "bytes_per_1000_tokens": _slope(runs),
        "bar_tokens": BAR_TOKENS,
        "bar_restore_s": BAR_RESTORE_S,
        "bar_wait_s": BAR_WAIT_S,
        "bar_size": BAR_SIZE,
        "holds": all(_holds(run) for run in runs),
    }


def render(result: dict[str, Any]) -> str:
    """The result as a small table."""
    lines = [
        f"save and restore sessions of {result['model']}",
        "   tokens        bytes  of state     wait     save  restore  continues",
    ]
    lines += [
        f"  {run['tokens']:7,} {run['bytes']:12,}  {run['size_ratio']:8.3f} "
        f"{run['wait_s']:7.3f}s {run['save_s']:7.3f}s {run['restore_s']:7.3f}s  "
        f"{'exactly' if run['is_exact'] else 'NOT EXACTLY'}"
        for run in result["runs"]
    ]
    per_1000 = result["bytes_per_1000_tokens"]
    if per_1000 is not None:
        lines.append(f"  {per_1000:,.0f} bytes for each further 1,000 tokens")
    lines.append(
        f"  bars: restore < {result['bar_restore_s']} s up to {result['bar_tokens']:,} tokens; "
        f"wait < {result['bar_wait_s']} s; bytes < {result['bar_size']} of the state"
    )
    return "\n".join([*lines, "within the bars" if result["holds"] else "OVER A BAR"])


def _measure(engine: Engine, session: Session, n: int, folder: Path) -> dict[str, Any]:
    held = session.ids if session.n < n else ()
    session.sync([*held, *_ids(engine, n - len(held))])
    waits, saves, restores = [], [], []
    for i in range(_REPEATS):
        place = folder / f"{n}-{i}"
        start = time.perf_counter()
        data = take(engine, session, place)
        taken = time.perf_counter()
        write(data, "bench", DiskFiles())
        written = time.perf_counter()
        back = restore(engine, place, "bench").session
        restores.append(time.perf_counter() - written)
        waits.append(taken - start)
        saves.append(written - taken)
    n_bytes = sum(path.stat().st_size for path in place.iterdir())
    own = sum(tensor.data.nbytes for tensor in data.tensors().values())
    return {
        "tokens": n,
        "bytes": n_bytes,
        "size_ratio": n_bytes / own,
        "wait_s": statistics.median(waits),
        "save_s": statistics.median(saves),
        "restore_s": statistics.median(restores),
        "is_exact": _continue(session) == _continue(back) and _states_equal(session, back),
    }


def _ids(engine: Engine, n: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(7).integers(0, engine.info.n_vocab, n)]


def _states_equal(one: Session, two: Session) -> bool:
    a, b = one.state(), two.state()
    return a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() for k in a)


def _continue(session: Session) -> list[int]:
    tokens: list[int] = []
    for _ in range(_CONTINUED):
        token = session.choose()
        tokens.append(token)
        if token in session.end_ids:
            break
        session.step(token)
    return tokens


def _holds(run: dict[str, Any]) -> bool:
    is_quick = run["tokens"] > BAR_TOKENS or run["restore_s"] < BAR_RESTORE_S
    is_light = run["wait_s"] < BAR_WAIT_S and run["size_ratio"] < BAR_SIZE
    return bool(is_quick and is_light and run["is_exact"])


def _slope(runs: Sequence[dict[str, Any]]) -> float | None:
    """Bytes for each 1,000 tokens between the shortest and the longest session."""
    first, last = runs[0], runs[-1]
    if first["tokens"] == last["tokens"]:
        return None
    n_tokens = last["tokens"] - first["tokens"]
    return float(1000 * (last["bytes"] - first["bytes"]) / n_tokens)
