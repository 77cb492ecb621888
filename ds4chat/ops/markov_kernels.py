"""The Markov chain of a draft, three launches a token: memory, product, pick; and what is told.

Each function returns None where its kernel is not for such arrays or cannot be built here. The
next token waits for the largest of all logits, which blocks find part by part: the launch
after them joins the parts, of equal ones the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.spec import KernelSpec, Tolerance

MAX_ROWS = 8
MAX_LOGITS = 1 << 24
"""A float holds all places below."""
THREADS = 256
PARTS = 3
"""Parts of a row at least: Metal keeps arrays of less than eight numbers in other memory."""
_PER_PART = 4 * THREADS
_TABLES = (mx.float32, mx.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """Logits `(L, V)` float32 and the largest of their parts `(L, parts, 3)`.

    Of each part its value, its place, and 1 if NaN is among the part.
    """

    logits: mx.array
    tops: mx.array


@cache
def pick_spec() -> KernelSpec:
    """The kernel behind `pick`."""
    return KernelSpec(
        name="markov_pick",
        source="markov_pick.kernel",
        headers=("top.h",),
        inputs=("base", "change"),
        outputs=("logits", "tops"),
        threads=THREADS,
        constants={"PARTS": PARTS},
        tolerance=Tolerance(nmse=1e-14, reason="one sum"),
    )


@cache
def memory_spec() -> KernelSpec:
    """The kernel behind `remember`."""
    return KernelSpec(
        name="markov_memory",
        source="markov_memory.kernel",
        headers=("top.h",),
        inputs=("tops", "table"),
        outputs=("memory",),
        threads=THREADS,
        tolerance=Tolerance(nmse=0.0, reason="widening is exact"),
    )


@cache
def tell_spec(n_rows: int) -> KernelSpec:
    """The kernel behind `tell`."""
    rows = range(n_rows)
    return KernelSpec(
        name="markov_tell",
        source="markov_tell.kernel",
        headers=("row.h", "top.h"),
        inputs=(
            *(f"tops_{i}" for i in rows),
            *(f"memory_{i}" for i in rows),
            *("hidden", "weight", "bias"),
        ),
        outputs=("told",),
        threads=THREADS,
        constants={"ROWS": n_rows},
        tolerance=Tolerance(nmse=1e-11, reason="float32 sums, and numbers that are exact"),
    )


def n_parts(n_logits: int) -> int:
    """Parts of a row of logits; of each row so many blocks of `pick_spec`."""
    return max(PARTS, -(-n_logits // _PER_PART))


def pick(base: mx.array, change: mx.array) -> Picked | None:
    """The sum of two `(L, V)` float32, and the largest of its parts."""
    n_rows, n_logits = base.shape
    if (
        current().is_reference
        or n_logits > MAX_LOGITS
        or base.shape != change.shape
        or any(a.dtype != mx.float32 for a in (base, change))
    ):
        return None
    parts = n_parts(n_logits)
    outputs = [
        Output(shape=(n_rows, n_logits), dtype=mx.float32),
        Output(shape=(n_rows, parts, 3), dtype=mx.float32),
    ]
    made = current().run(pick_spec(), [base, change], n_rows * parts, outputs)
    return None if made is None else Picked(logits=made[0], tops=made[1])


def remember(tops: mx.array, table: mx.array) -> mx.array | None:
    """The rows `(L, R)` float32 of `table` `(V, R)` that the largest logits stand for."""
    if current().is_reference or table.dtype not in _TABLES:
        return None
    n_rows, rank = int(tops.shape[0]), int(table.shape[1])
    output = Output(shape=(n_rows, rank), dtype=mx.float32)
    made = current().run(memory_spec(), [tops, table], n_rows, [output])
    return None if made is None else made[0]


def tell(
    tops: Sequence[mx.array],
    memories: Sequence[mx.array],
    hidden: mx.array,
    weight: mx.array,
    bias: mx.array,
) -> mx.array | None:
    """Places, confidences and the largest logits `(3, L)` of L rows, 8 at most.

    Args:
        tops: of each row, `(1, parts, 3)`.
        memories: of each row, `(1, R)` float32.
        hidden: `(L, D)` float32.
        weight: `(D + R,)` float32.
        bias: of one number.
    """
    n_rows = len(tops)
    floats = (*memories, hidden, weight, bias)
    if (
        current().is_reference
        or n_rows > MAX_ROWS
        or any(a.dtype != mx.float32 for a in floats)
    ):
        return None
    inputs = [*tops, *memories, hidden, weight, bias.reshape(1)]
    output = Output(shape=(3, n_rows), dtype=mx.float32)
    made = current().run(tell_spec(n_rows), inputs, n_rows, [output])
    return None if made is None else made[0]
