"""What a pass does to a layer's rings and rows, in one launch where stock operations need six.

Each function returns None where its kernel is not for such arrays or cannot be built here. The
callers' stock operations give the same rings and choices, and pooled rows up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx

from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.linear import Columns
from ds4chat.ops.spec import KernelSpec, Tolerance

MAX_ROWS = 8
MAX_KEYS = 16_384
"""Keys whose ranks are counted; the work grows with their square."""
RING_THREADS, NARROW = 256, 64
_RAW = ("raw", "values", "gates", "bias", "phase", "raw_slots")
_OTHER = ("other", "other_values", "other_gates", "other_bias")
_TYPES = (mx.float32, mx.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """A compressor's ring `(R, 2, W)`, and what a pass adds to it.

    `values` and `gates` are W columns; `bias` `(ratio, W)` joins the gates.
    """

    ring: mx.array
    values: Columns
    gates: Columns
    bias: mx.array


@cache
def rings_spec(*firsts: int) -> KernelSpec:
    """The kernel behind `keep`; the first columns of values and gates of each raw ring."""
    n_raw = len(firsts) // 2
    names = ("VALUES_FROM", "GATES_FROM", "OTHER_VALUES_FROM", "OTHER_GATES_FROM")
    return KernelSpec(
        name=f"rings_{n_raw}",
        source="rings.kernel",
        inputs=(
            *("window", "rows", "slots"),
            *(_RAW if n_raw else ()),
            *(_OTHER if n_raw > 1 else ()),
        ),
        outputs=("new_window", "new_raw", "new_other")[: 1 + n_raw],
        threads=RING_THREADS,
        constants={
            "THREADS": RING_THREADS,
            "N_RAW": n_raw,
            **dict(zip(names, firsts, strict=False)),
        },
        tolerance=Tolerance(nmse=0.0, reason="copies and one sum"),
    )


@cache
def pool_spec(*, is_overlapping: bool, is_first: bool) -> KernelSpec:
    """The kernel behind `pool`."""
    return KernelSpec(
        name="pool",
        source="pool.kernel",
        inputs=("raw", "slots"),
        outputs=("pooled",),
        threads=NARROW,
        constants={"IS_OVERLAPPING": int(is_overlapping), "IS_FIRST": int(is_first)},
        tolerance=Tolerance(nmse=1e-11, reason="float32 sums of up to 128 products"),
    )


@cache
def choose_spec(n_kept: int) -> KernelSpec:
    """The kernel behind `choose`."""
    return KernelSpec(
        name="choose",
        source="choose.kernel",
        inputs=("scores", "mask"),
        outputs=("chosen",),
        threads=NARROW,
        constants={"KEPT": n_kept},
        tolerance=Tolerance(nmse=0.0, reason="a choice"),
    )


def keep(
    window: mx.array,
    rows: mx.array,
    slots: mx.array,
    raw: list[RawRows],
    phase: mx.array | None,
    raw_slots: mx.array | None,
) -> list[mx.array] | None:
    """A ring `(R, d)` with `rows` `(L, d)` at `slots`, and the rings of `raw`.

    Args:
        window: the ring.
        rows: in the type of `window`.
        slots: `(L,)`, all different.
        raw: rings of compressors, two at most.
        phase: `(L,)`, which position bias each row takes; None without `raw`.
        raw_slots: `(L,)`, where in the rings of `raw`.
    """
    parts = [c.whole for r in raw for c in (r.values, r.gates)]
    firsts = [c.first for r in raw for c in (r.values, r.gates)]
    is_typed = rows.dtype == window.dtype and all(a.dtype in _TYPES for a in (window, *parts))
    if current().is_reference or rows.shape[0] > MAX_ROWS or not is_typed:
        return None
    inputs, blocks = [window, rows, slots], window.shape[0]
    for i, r in enumerate(raw):
        assert phase is not None
        assert raw_slots is not None
        inputs += [
            r.ring,
            r.values.whole,
            r.gates.whole,
            r.bias,
            *(() if i else (phase, raw_slots)),
        ]
        blocks += r.ring.shape[0]
    made = [window, *(r.ring for r in raw)]
    outputs = [Output(shape=a.shape, dtype=a.dtype) for a in made]
    return current().run(rings_spec(*firsts), inputs, blocks, outputs)


def pool(
    raw: mx.array, slots: mx.array, *, is_overlapping: bool, is_first: bool
) -> mx.array | None:
    """The raw rows `(R, 2, W)` at `slots`, in token order, as one row `(1, c)` float32."""
    if current().is_reference:
        return None
    width = raw.shape[2] // 2 if is_overlapping else raw.shape[2]
    spec = pool_spec(is_overlapping=is_overlapping, is_first=is_first)
    output = Output(shape=(1, width), dtype=mx.float32)
    made = current().run(spec, [raw, slots], -(-width // NARROW), [output])
    return None if made is None else made[0]


def choose(scores: mx.array, mask: mx.array, n_kept: int) -> mx.array | None:
    """`mask` `(L, S)` with the best `n_kept` by `scores` `(L, C)` of its last C columns."""
    if current().is_reference or scores.shape[0] > MAX_ROWS or scores.shape[1] > MAX_KEYS:
        return None
    n_blocks = mask.shape[0] * -(-mask.shape[1] // NARROW)
    output = Output(shape=mask.shape, dtype=mx.float32)
    made = current().run(choose_spec(n_kept), [scores, mask], n_blocks, [output])
    return None if made is None else made[0]
