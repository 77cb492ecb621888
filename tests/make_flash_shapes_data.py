"""Block data at memory speed: a few megabytes of random valid blocks, laid down in a circle.

A tensor's block i is block `first + i` of its format's pool, modulo the pool's size. That size
is prime, so rows begin at different blocks until the pool has gone round once for each.
Files are mapped, not written to: writers of one file would wait for each other.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from ds4chat.sizes import part, size
from tests.pair_blocks import encode, is_random, random_blocks, rng_for

_N_BLOCKS = 131_101  # prime: more rows than the vocabulary has begin differently
_N_VALUES = 2_097_169  # prime: for formats whose block is one value
_SPAN_BYTES = 256 << 20
_TICK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of one tensor's data, whole blocks, at `offset` of the file.

    `std` is the spread of its values; the stretch begins with block `first` of the pool.
    """

    path: str
    offset: int
    n_bytes: int
    kind: int
    std: float
    first: int
    seed: int


def spans(whole: Span, n_bytes: int = _SPAN_BYTES) -> Iterator[Span]:
    """Cut the span of a tensor into such that one process fills at a time."""
    _, block = gguf.GGML_QUANT_SIZES[Type(whole.kind)]
    step = max(1, n_bytes // block) * block
    for start in range(0, whole.n_bytes, step):
        yield Span(
            path=whole.path,
            offset=whole.offset + start,
            n_bytes=min(step, whole.n_bytes - start),
            kind=whole.kind,
            std=whole.std,
            first=whole.first + start // block,
            seed=whole.seed,
        )


@cache
def pool(kind: int, std: float, seed: int) -> NDArray[np.uint8]:
    """`(n, block_bytes)`: random valid blocks whose values have the spread `std`."""
    values, n_bytes = gguf.GGML_QUANT_SIZES[Type(kind)]
    n = _N_VALUES if values == 1 else _N_BLOCKS
    rng = rng_for(seed, f"pool {kind} {std:.9f}")
    if is_random(Type(kind)):
        return random_blocks(Type(kind), (n, values), std, rng)
    drawn = np.random.default_rng(rng.randint(1 << 31)).standard_normal((n, values), np.float32)
    return encode(drawn * np.float32(std), Type(kind)).view(np.uint8).reshape(n, n_bytes)


def fill(span: Span) -> int:
    """Write one span; returns its size."""
    blocks = pool(span.kind, span.std, span.seed)
    base = span.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    lead = span.offset - base
    handle = os.open(span.path, os.O_RDWR)
    try:
        mapped = mmap.mmap(handle, lead + span.n_bytes, offset=base)
    finally:
        os.close(handle)
    with mapped:
        out = np.frombuffer(mapped, np.uint8)[lead:].reshape(-1, blocks.shape[1])
        _lay(out, blocks, span.first)
        del out
    return span.n_bytes


def _lay(out: NDArray[np.uint8], blocks: NDArray[np.uint8], first: int) -> None:
    done = 0
    while done < len(out):
        at = (first + done) % len(blocks)
        n = min(len(out) - done, len(blocks) - at)
        out[done : done + n] = blocks[at : at + n]
        done += n


def fill_all(todo: Sequence[Span], n_processes: int) -> None:
    """Write all spans with some processes, and say on standard error how far it is."""
    meter = _Meter(total=sum(span.n_bytes for span in todo))
    if n_processes == 1:
        meter.follow(map(fill, todo))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, mp_context=context) as workers:
        jobs = [workers.submit(fill, span) for span in todo]
        try:
            meter.follow(job.result() for job in as_completed(jobs))
        except BaseException:
            workers.shutdown(wait=True, cancel_futures=True)
            raise


@dataclass(slots=True, kw_only=True)
class _Meter:
    total: int

    def follow(self, sizes: Iterable[int]) -> None:
        start = shown = time.monotonic()
        done = 0
        for n_bytes in sizes:
            done += n_bytes
            now = time.monotonic()
            if now - shown >= _TICK_S or done == self.total:
                shown = now
                rate = done / max(now - start, 1e-9)
                sys.stderr.write(f"  {part(done, self.total)}, {size(int(rate))}/s\n")


def write_at(path: Path, pieces: Sequence[tuple[int, bytes]]) -> None:
    """Write small pieces at their offsets."""
    with path.open("r+b") as file:
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)
