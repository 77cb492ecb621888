"""Attention of a prompt's rows in one launch: norms, rotations, window, compressed rows, sinks.

Queries and weights are rounded to bf16, sums are float32. Where this is not for such arrays the
caller takes `bands.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np

from ds4chat.ops.attention_kernels import MAX_HEAD, fits_decode
from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.rope import RopeTable
from ds4chat.ops.spec import LANES, KernelSpec, Tolerance

CHUNK = 128
_SIMDGROUPS = {"cuda": 8, "metal": 4, "host": 8}
_HALF = Tolerance(nmse=5e-5, reason="queries, weights and results are rounded to bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptKeys:
    """What the rows of a pass see; `n` is the position of its first row.

    `before` `(W - 1, d)` and `own` `(L, d)` are window rows. `rows` `(C, d)` are compressed
    ones, each made of `ratio` positions; with `mask` `(L, C)` those count where it is 0.
    """

    before: mx.array
    own: mx.array
    rows: mx.array | None
    mask: mx.array | None
    n: int
    ratio: int


@cache
def prompt_spec(
    width: int, n_heads: int, window: int, eps: float, *, backend: str, has_rows: bool,
    has_mask: bool,
) -> KernelSpec:  # fmt: skip
    """The variant for heads of `width` channels; 16 of them share what a block reads."""
    return KernelSpec(
        name="attn_prompt",
        source="attn_prompt.kernel",
        headers=("row.h", "lanes.h"),
        inputs=(
            *("q", "window"),
            *(("keys",) if has_rows else ()),
            *(("mask",) if has_mask else ()),
            *("place", "sink", "cosines", "sines"),
        ),
        outputs=("out",),
        threads=LANES * _SIMDGROUPS[backend],
        constants={
            "VALUES": width // LANES,
            "HEADS": n_heads,
            "GROUPS": _groups(n_heads),
            "WINDOW": window,
            "SIMDGROUPS": _SIMDGROUPS[backend],
            "CHUNK": CHUNK,
            "HAS_ROWS": int(has_rows),
            "HAS_MASK": int(has_mask),
            "RMS_EPS": f"{eps!r}f",
            "SCALE": f"{width**-0.5!r}f",
        },
        tolerance=_HALF,
    )


def _groups(n_heads: int) -> int:
    """Eights of heads that a block takes."""
    return 2 if n_heads % 16 == 0 else 1


def prompt_blocks(n_rows: int, n_heads: int) -> int:
    """Blocks of a launch of `prompt_spec`."""
    return n_rows * (n_heads // (8 * _groups(n_heads)))


def attend_prompt(
    q: mx.array, seen: PromptKeys, sink: mx.array, table: RopeTable, eps: float
) -> mx.array | None:
    """Queries `(L, H * d)` bf16 as projected to attended values `(L, H, d)`, turned back.

    None where there is no kernel for such heads or types.
    """
    n_heads, width, dispatcher = int(sink.shape[0]), int(seen.own.shape[1]), current()
    keys = [seen.before, seen.own, *([] if seen.rows is None else [seen.rows])]
    is_half = all(a.dtype == mx.bfloat16 for a in (q, *keys))
    if not is_half or n_heads % 8 or width > MAX_HEAD or not fits_decode(dispatcher, width):
        return None
    spec = prompt_spec(
        width,
        n_heads,
        int(seen.before.shape[0]) + 1,
        eps,
        backend=dispatcher.backend,
        has_rows=seen.rows is not None,
        has_mask=seen.mask is not None,
    )
    place = mx.array(np.array([seen.n, max(1, seen.ratio)], np.int32))
    inputs = [q, mx.concatenate(keys[:2]), *keys[2:]]
    inputs += [] if seen.mask is None else [seen.mask]
    inputs += [place, sink, table.cos, table.sin]
    output = Output(shape=(q.shape[0], n_heads, width), dtype=mx.bfloat16)
    n_blocks = prompt_blocks(int(q.shape[0]), n_heads)
    made = dispatcher.run(spec, inputs, n_blocks, [output])
    return None if made is None else made[0]
