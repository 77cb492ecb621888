"""Experts from GGUF blocks in three launches: choice, gate + up, down + weighted sum.

Each distinct expert of a pass is read once, whatever number of rows chose it; a row's experts
are added in its own router order, and its bits ignore the other rows. The shared expert has a
launch of its own for gate + up and is an ordinary product after that; the routed experts' last
launch adds it. More than 8 rows take the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants.base import QuantFormat, decode
from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.qmatmul import (
    MAX_ROWS,
    SHARED_BYTES,
    STAGE_VALUES,
    BlockWeight,
    Walk,
    has_kernel,
    headers_of,
    split_of,
    tables,
    walk_constants,
)
from ds4chat.ops.spec import LANES, KernelSpec, Tolerance

MAX_PICKS = 8
MAX_EXPERTS = 1024
"""Experts whose scores stand in shared memory; `moe_down` has 16 bits for an id."""
ROUTE_THREADS = 256
_TABLE_BYTES = 2048
_ROUNDED = Tolerance(nmse=4e-6, reason="the output is rounded to bf16: 2^-9 relative, squared")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertBlocks:
    """A stack of weights `[E, out, in]` as `(E, out, row_bytes)` uint8 of whole blocks."""

    blocks: mx.array
    quant: QuantFormat
    n_in: int

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return int(self.blocks.shape[1])


def pack_experts(
    raw: NDArray[np.uint8], quant: QuantFormat, shape: tuple[int, ...]
) -> ExpertBlocks:
    """Keep the bytes of a tensor of `shape` `(E, out, in)` as they are."""
    n_experts, n_out, n_in = shape
    rows = np.ascontiguousarray(raw).reshape(n_experts, n_out, quant.row_bytes(n_in))
    return ExpertBlocks(blocks=mx.array(rows), quant=quant, n_in=n_in)


@cache
def gate_up_spec(  # noqa: PLR0913  (what a variant depends on)
    format_name: str,
    n_in: int,
    x_type: str,
    n_picks: int,
    limit: float,
    *,
    backend: str,
    is_bf16_out: bool,
    walk: Walk | None = None,
) -> KernelSpec:
    """The variant for a format, row length, type of x, picks a row and clamp.

    No picks: the shared expert, which every row takes.
    """
    if walk is not None:
        chosen = walk
    elif n_picks:
        chosen = gate_up_walk(format_name, backend)
    else:
        chosen = shared_walk(format_name, n_in, backend)
    return KernelSpec(
        name=f"moe_{'gate_up' if n_picks else 'shared'}_{format_name.lower()}",
        source="moe_gate_up.kernel",
        headers=_headers(format_name),
        inputs=("x", "gate", "up", *(("picks",) if n_picks else ())),
        outputs=("hidden",),
        threads=LANES * chosen.simdgroups,
        constants={
            **chosen.constants,
            **walk_constants(format_name, n_in),
            **tables(format_name),
            "X_LIMBS": 3 if x_type == "float32" else 1,
            "N_PICKS": n_picks,
            "LIMIT": f"{limit!r}f",
        },
        tolerance=_ROUNDED if is_bf16_out else Tolerance(),
    )


@cache
def down_spec(  # noqa: PLR0913  (what a variant depends on)
    format_name: str,
    n_in: int,
    x_type: str,
    n_picks: int,
    *,
    backend: str,
    is_bf16_out: bool,
    has_more: bool = False,
    walk: Walk | None = None,
) -> KernelSpec:
    """The variant for a format, row length, type of the hidden values, picks a row.

    The `split` of a walk is the parts that an expert's row is cut in; with `has_more` an array
    is added to the sum. Twelve simdgroups are told to leave registers for another block: left
    alone the compiler takes 84 instead of 80, and 36 picks take 80 instead of 59 us.
    """
    chosen = walk or down_walk(format_name, n_picks, backend)
    constants = chosen.constants
    return KernelSpec(
        name=f"moe_down_{format_name.lower()}",
        source="moe_down.kernel",
        headers=_headers(format_name),
        inputs=("hidden", "down", "picks", "weights", *(("more",) if has_more else ())),
        outputs=("y",),
        threads=LANES * chosen.simdgroups,
        constants={
            **constants,
            "PARTS": constants.pop("SPLIT"),
            **walk_constants(format_name, n_in),
            **tables(format_name),
            "X_LIMBS": 3 if x_type == "float32" else 1,
            "N_PICKS": n_picks,
            "HAS_MORE": int(has_more),
            **({"BLOCKS_AT_ONCE": 2} if chosen.simdgroups > 8 else {}),
        },
        tolerance=_ROUNDED if is_bf16_out else Tolerance(),
    )


@cache
def route_spec(n_experts: int, n_picks: int, scale: float, *, has_table: bool) -> KernelSpec:
    """The variant for a number of experts and picks; `has_table`: tokens say who is picked."""
    return KernelSpec(
        name="route_table" if has_table else "route",
        source="route.kernel",
        inputs=("logits", *(("table", "ids") if has_table else ("bias",))),
        outputs=("picks", "weights"),
        threads=ROUTE_THREADS,
        constants={
            "THREADS": ROUTE_THREADS,
            "EXPERTS": n_experts,
            "PICKS": n_picks,
            "EXPERT_SCALE": f"{scale!r}f",
            "HAS_TABLE": int(has_table),
        },
    )


def _headers(format_name: str) -> tuple[str, ...]:
    return (*headers_of(format_name), "experts.h")


def gate_up_walk(format_name: str, backend: str) -> Walk:
    """How simdgroups share the gate and up projections of an expert."""
    is_unrolled = format_name == "IQ2_XXS" and backend != "metal"
    return Walk(simdgroups=4, split=2, groups=16 if is_unrolled else 0)


def shared_walk(format_name: str, n_in: int, backend: str) -> Walk:
    """The same for one expert, which leaves most of a GPU idle unless many share its tiles.

    Q8_0 of K 4096, F 2048 on an H200: 9.9 us; 11.1 with eight for a tile, 12.2 with two.
    """
    if backend == "metal":
        return gate_up_walk(format_name, backend)
    split = split_of(n_in, STAGE_VALUES[format_name], 4)
    return Walk(simdgroups=max(4, 2 * split), split=split, columns=8)


def down_walk(format_name: str, n_picks: int, backend: str) -> Walk:
    """As many simdgroups as have room; up to four rows two of them may share an expert.

    Q2_K of K 2048, N 4096 on an H200, 6 and 36 picks: 15.3 and 59.0 us; experts cut in four
    15.3 and 60.9, eight simdgroups 16.0 and 63.6, tiles of 8 columns 20.5 and 88.9.
    """
    walks = [Walk(simdgroups=n, split=2) for n in (12, 8, 4, 2)]
    room = SHARED_BYTES[backend]
    fitting = (w for w in walks if down_bytes(w, format_name, n_picks) <= room)
    return next(fitting, walks[-1])


def down_bytes(walk: Walk, format_name: str, n_picks: int) -> int:
    """Shared memory of a block of `down_spec`."""
    n_slots = MAX_ROWS * n_picks
    lists = n_slots * (2 * 4 + 2 + MAX_ROWS) + 64
    outs = n_slots * walk.columns * 4
    table = _TABLE_BYTES if format_name == "IQ2_XXS" else 0
    return walk.shared_bytes(format_name) + outs + lists + table


def gate_up_blocks(spec: KernelSpec, n_slots: int, n_out: int) -> int:
    """Blocks of a launch of `gate_up_spec` for `n_slots` picks of all rows; shared: one."""
    tiles = spec.threads // LANES // (2 * int(spec.constants["SPLIT"]))
    return n_slots * -(-n_out // (tiles * int(spec.constants["COLUMNS"])))


def down_blocks(spec: KernelSpec, n_out: int) -> int:
    """Blocks of a launch of `down_spec`."""
    return -(-n_out // int(spec.constants["COLUMNS"]))


def route(
    logits: mx.array, chooser: tuple[mx.array] | tuple[mx.array, mx.array], k: int, scale: float
) -> tuple[mx.array, mx.array] | None:
    """`(L, E)` router products to picks `(L, k)` int32 and their weights, or None.

    `chooser` is the bias `(E,)`, or a table `(V, k)` of picks and the tokens `(L,)`.
    """
    n_rows, n_experts = logits.shape
    kinds = [a.dtype for a in chooser]
    is_typed = kinds in ([mx.float32], [mx.int32, mx.int32]) and logits.dtype == mx.float32
    if current().is_reference or n_rows > MAX_ROWS or n_experts > MAX_EXPERTS or not is_typed:
        return None
    spec = route_spec(n_experts, k, scale, has_table=len(chooser) > 1)
    outputs = [
        Output(shape=(n_rows, k), dtype=mx.int32),
        Output(shape=(n_rows, k), dtype=mx.float32),
    ]
    made = current().run(spec, [logits, *chooser], n_rows, outputs)
    return None if made is None else (made[0], made[1])


def gate_up(
    x: mx.array, picks: mx.array, gate: ExpertBlocks, up: ExpertBlocks, limit: float
) -> mx.array:
    """`(L, in)` and `(L, P)` expert ids to activated `(L, P, F)` in the type of `x`."""
    n_rows, n_picks = picks.shape
    dispatcher = current()
    if not dispatcher.is_reference and gate.quant is up.quant and _fits(picks, gate):
        spec = gate_up_spec(
            gate.quant.name,
            gate.n_in,
            _type_name(x),
            n_picks,
            limit,
            backend=dispatcher.backend,
            is_bf16_out=x.dtype == mx.bfloat16,
        )
        output = Output(shape=(n_rows, n_picks, gate.n_out), dtype=x.dtype)
        n_blocks = gate_up_blocks(spec, n_rows * n_picks, gate.n_out)
        made = dispatcher.run(spec, [x, gate.blocks, up.blocks, picks], n_blocks, [output])
        if made is not None:
            return made[0]
    rows = x.astype(mx.float32)[:, None, :, None]
    a, b = (mx.squeeze(_chosen(w, picks) @ rows, -1) for w in (gate, up))
    a, b = mx.minimum(a, limit), mx.clip(b, -limit, limit)
    return (a * mx.sigmoid(a) * b).astype(x.dtype)


def shared_hidden(
    x: mx.array, gate: BlockWeight, up: BlockWeight, limit: float
) -> mx.array | None:
    """`(L, in)` through the shared expert's gate and up: `(L, F)` like `x`, or None."""
    dispatcher = current()
    is_known = gate.quant is up.quant and has_kernel(gate.quant, gate.n_in)
    if dispatcher.is_reference or x.shape[0] > MAX_ROWS or not is_known:
        return None
    spec = gate_up_spec(
        gate.quant.name,
        gate.n_in,
        _type_name(x),
        0,
        limit,
        backend=dispatcher.backend,
        is_bf16_out=x.dtype == mx.bfloat16,
    )
    output = Output(shape=(x.shape[0], gate.n_out), dtype=x.dtype)
    n_blocks = gate_up_blocks(spec, 1, gate.n_out)
    made = dispatcher.run(spec, [x, gate.blocks, up.blocks], n_blocks, [output])
    return None if made is None else made[0]


def down(
    hidden: mx.array,
    picks: mx.array,
    weights: mx.array,
    w: ExpertBlocks,
    more: mx.array | None = None,
) -> mx.array:
    """`(L, P, F)` through each pick's expert, times `(L, P)`, summed: `(L, out)` float32.

    `more` `(L, out)` float32 is added last.
    """
    dispatcher = current()
    if not dispatcher.is_reference and _fits(picks, w):
        spec = down_spec(
            w.quant.name,
            w.n_in,
            _type_name(hidden),
            int(picks.shape[1]),
            backend=dispatcher.backend,
            is_bf16_out=False,
            has_more=more is not None,
        )
        output = Output(shape=(hidden.shape[0], w.n_out), dtype=mx.float32)
        inputs = [hidden, w.blocks, picks, weights, *([] if more is None else [more])]
        made = dispatcher.run(spec, inputs, down_blocks(spec, w.n_out), [output])
        if made is not None:
            return made[0]
    out = mx.squeeze(_chosen(w, picks) @ hidden.astype(mx.float32)[..., None], -1)
    total = mx.squeeze(weights[:, None, :] @ out, 1)
    return total if more is None else total + more


def _type_name(x: mx.array) -> str:
    return "float32" if x.dtype == mx.float32 else "bfloat16"


def _fits(picks: mx.array, w: ExpertBlocks) -> bool:
    is_small = picks.shape[0] <= MAX_ROWS and picks.shape[1] <= MAX_PICKS
    is_small = is_small and w.blocks.shape[0] <= MAX_EXPERTS
    return is_small and w.quant.name in STAGE_VALUES and has_kernel(w.quant, w.n_in)


def _chosen(w: ExpertBlocks, picks: mx.array) -> mx.array:
    """The picked experts decoded on the host: `(L, P, out, in)` float32."""
    ids = np.array(picks)
    used, places = np.unique(ids, return_inverse=True)
    raw = np.array(w.blocks[mx.array(used)])
    values = mx.array(decode(w.quant, raw, (len(used), w.n_out, w.n_in)))
    return values[mx.array(places.reshape(ids.shape))]
