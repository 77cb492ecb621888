"""What a decode pass keeps of a layer and asks it with: rings and latents, in one launch.

Returns None where the kernel is not for such arrays or cannot be built here. The callers' stock
operations give the same rings, up to a code at a tie of the FP8 round trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx

from ds4chat.ops.attention_kernels import HALF, MAX_ROWS, MAX_WIDTH, THREADS, TYPES
from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.linear import Columns
from ds4chat.ops.rope import RopeTable
from ds4chat.ops.spec import KernelSpec

_RAW = ("raw", "values", "gates", "bias", "phase", "raw_slots")
_OTHER = ("other", "other_values", "other_gates", "other_bias")
_PLACES = ("VALUES_AT", "GATES_AT", "OTHER_VALUES_AT", "OTHER_GATES_AT")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRows:
    """Rows `kv` `(L, d)` as projected, and what makes key/value rows of them."""

    kv: Columns
    norm: mx.array
    table: RopeTable
    eps: float
    is_rounded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Latents `q_a` `(L, Q)` as projected and their norm."""

    q_a: Columns
    norm: mx.array


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """A compressor's ring `(R, 2, W)`, and what a pass adds to it.

    `values` and `gates` `(L, W)`; `bias` `(ratio, W)` joins the gates.
    """

    ring: mx.array
    values: Columns
    gates: Columns
    bias: mx.array


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPlace:
    """Where a pass's raw rows go: `phase` `(L,)` chooses the bias, `slots` `(L,)` the slots."""

    phase: mx.array
    slots: mx.array


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The window with its new rows, the other rings, and latents as of `FirstRows`."""

    window: mx.array
    raw: tuple[mx.array, ...]
    latent: mx.array
    wide: mx.array


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a variant depends on; `places`: first columns of kv, q_a, values and gates."""

    widest: int
    eps: float
    places: tuple[int, ...]
    has_latent: bool
    has_wide: bool
    is_rounded: bool

    @property
    def n_raw(self) -> int:
        """Rings of raw rows."""
        return len(self.places) // 2 - 1


@cache
def keep_spec(form: Form) -> KernelSpec:
    """The kernel behind `keep`."""
    n_raw, has_latent = form.n_raw, form.has_latent
    latents = ("latent", "wide_latent")[: has_latent + form.has_wide]
    return KernelSpec(
        name=f"keep_{n_raw}" if has_latent else f"keep_rows_{n_raw}",
        source="keep.kernel",
        headers=("row.h", "latent.h"),
        inputs=(
            *("window", "slots", "kv", "kv_norm", "cosines", "sines"),
            *(("q_a", "q_norm") if has_latent else ()),
            *(_RAW if n_raw else ()),
            *(_OTHER if n_raw > 1 else ()),
        ),
        outputs=("new_window", *("new_raw", "new_other")[:n_raw], *latents),
        threads=THREADS,
        constants={
            "WIDEST": form.widest,
            "RMS_EPS": f"{form.eps!r}f",
            "HAS_LATENT": int(has_latent),
            "HAS_WIDE": int(form.has_wide),
            "IS_ROUNDED": int(form.is_rounded),
            "N_RAW": n_raw,
            "KV_AT": form.places[0],
            "Q_AT": form.places[1],
            **dict(zip(_PLACES, form.places[2:], strict=False)),
        },
        tolerance=HALF,
        in_place=True,
    )


def keep(
    window: mx.array,
    slots: mx.array,
    keys: KeyRows,
    queries: Queries | None = None,
    raw: tuple[RawRows, ...] = (),
    place: RawPlace | None = None,
) -> Kept | None:
    """A ring `(R, d)` with the rows of `keys` at `slots` `(L,)`, and the rings of `raw`.

    Args:
        window: the ring; its type is that of the rows.
        slots: all different.
        keys: the rows.
        queries: latents that the launch also makes; without them `Kept` has rings alone.
        raw: rings of compressors, two at most.
        place: needed with `raw`.
    """
    if not _fits(window, slots, keys, queries, raw):
        return None
    form, n_rows = _form(keys, queries, raw), int(slots.shape[0])
    inputs = [window, slots, keys.kv.whole, keys.norm, keys.table.cos, keys.table.sin]
    inputs += [] if queries is None else [queries.q_a.whole, queries.norm]
    for i, r in enumerate(raw):
        assert place is not None
        inputs += [r.ring, r.values.whole, r.gates.whole, r.bias]
        inputs += [] if i else [place.phase, place.slots]
    rings = [window, *(r.ring for r in raw)]
    outputs = [Output(shape=a.shape, dtype=a.dtype) for a in rings]
    outputs += [] if queries is None else _latents(form, queries, n_rows)
    n_blocks = sum(a.shape[0] for a in rings) + (n_rows if queries else 0)
    made = current().run(keep_spec(form), inputs, n_blocks, outputs)
    if made is None:
        return None
    n = len(rings)
    latent, wide = (made[n], made[-1]) if queries else (made[0], made[0])
    return Kept(window=made[0], raw=tuple(made[1:n]), latent=latent, wide=wide)


def _form(keys: KeyRows, queries: Queries | None, raw: tuple[RawRows, ...]) -> Form:
    q_a = queries.q_a if queries else None
    columns = [c for r in raw for c in (r.values, r.gates)]
    return Form(
        widest=max(keys.kv.width, q_a.width if q_a else 0),
        eps=keys.eps,
        places=(keys.kv.first, q_a.first if q_a else 0, *(c.first for c in columns)),
        has_latent=queries is not None,
        has_wide=q_a is not None and q_a.whole.dtype != mx.float32,
        is_rounded=keys.is_rounded,
    )


def _latents(form: Form, queries: Queries, n_rows: int) -> list[Output]:
    types = [queries.q_a.whole.dtype, *([mx.float32] if form.has_wide else [])]
    return [Output(shape=(n_rows, queries.q_a.width), dtype=t) for t in types]


def _fits(
    window: mx.array,
    slots: mx.array,
    keys: KeyRows,
    queries: Queries | None,
    raw: tuple[RawRows, ...],
) -> bool:
    columns = [keys.kv, *(c for r in raw for c in (r.values, r.gates))]
    columns += [] if queries is None else [queries.q_a]
    n_plain = keys.kv.width - 2 * keys.table.cos.shape[1]
    return (
        not current().is_reference
        and slots.shape[0] <= MAX_ROWS
        and all(a.dtype in TYPES for a in (window, *(c.whole for c in columns)))
        and max(keys.kv.width, queries.q_a.width if queries else 0) <= MAX_WIDTH
        and (n_plain % 64 == 0 or not keys.is_rounded)
    )
