"""One long reply on a tiny pair, plain and speculative: what each thousand tokens costs.

`python -m tests.long_reply [--tokens 20000] [--every 1000]` prints speed, resident memory, what
MLX holds and the number of live arrays, which must be level after the first lines. The drafter
runs in every round; what is verified comes from the plain text, right up to a place that
differs from round to round, so that all accept counts occur.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from tests.engines import SMALL, open_pair, other_id, random_ids

CTX = 65_536
BLOCK = 5
N_PROMPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What was seen when `n` tokens had been generated."""

    n: int
    tps: float
    rss_mb: float
    active_mb: float
    pool_mb: float  # freed buffers that MLX keeps for reuse
    n_arrays: int


def resident_mb() -> float:
    """Resident memory of this process (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no VmRSS")


def open_engine(folder: Path) -> Engine:
    """The engine over a tiny pair; nothing ends its text."""
    return open_pair(folder, options={"ctx": CTX, "end_ids": []}, seed=41, **SMALL)


def prompted(engine: Engine) -> Session:
    """A session that holds the prompt."""
    session = engine.session()
    session.sync(random_ids(engine, N_PROMPT))
    return session


def plain_steps(session: Session) -> Iterator[list[int]]:
    """Decode plainly, for ever."""
    while True:
        yield [session.step(session.choose()).id]


def spec_rounds(engine: Engine, session: Session, text: list[int]) -> Iterator[list[int]]:
    """Decode speculatively up to the end of `text`, the plain text."""
    number = 0
    while (at := session.n - N_PROMPT) < len(text):
        n_right = min(number % (BLOCK + 1), len(text) - at - 1)
        right = text[at + 1 : at + 1 + n_right]
        wrong = [other_id(engine, t) for t in text[at + 1 + n_right : at + 1 + BLOCK]]
        first = session.choose()
        tokens = session.speculate(first, len(text) - at, proposal=right + wrong)
        number += 1
        yield [token.id for token in tokens]


def watch(
    steps: Iterator[list[int]], n_tokens: int, every: int, tell: Callable[[Mark], None]
) -> list[int]:
    """Take steps until there are `n_tokens`; look at the process after each `every`."""
    ids: list[int] = []
    start = time.perf_counter()
    for new in steps:
        before = len(ids)
        ids += new
        if len(ids) // every > before // every:
            seconds = time.perf_counter() - start
            gc.collect()
            tell(
                Mark(
                    n=len(ids),
                    tps=every / seconds,
                    rss_mb=resident_mb(),
                    active_mb=mx.get_active_memory() / (1 << 20),
                    pool_mb=mx.get_cache_memory() / (1 << 20),
                    n_arrays=sum(isinstance(o, mx.array) for o in gc.get_objects()),
                )
            )
            start = time.perf_counter()
        if len(ids) >= n_tokens:
            break
    return ids


def _show(mark: Mark) -> None:
    sys.stdout.write(
        f"{mark.n:6d} tokens  {mark.tps:6.1f} tok/s  RSS {mark.rss_mb:7.1f} MB  "
        f"MLX {mark.active_mb:6.2f} + {mark.pool_mb:6.2f} MB  {mark.n_arrays:5d} arrays\n"
    )
    sys.stdout.flush()


def main() -> int:
    """Run both; returns 1 if the texts differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=1_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_engine(Path(folder)) as engine:
        sys.stdout.write("plain\n")
        plain = prompted(engine)
        text = watch(plain_steps(plain), args.tokens, args.every, _show)
        plain.close()
        sys.stdout.write("speculative\n")
        spec = prompted(engine)
        found = watch(spec_rounds(engine, spec, text), args.tokens, args.every, _show)
        sys.stdout.write(f"texts {'are equal' if found == text else 'DIFFER'}\n")
    return int(found != text)


if __name__ == "__main__":
    sys.exit(main())
