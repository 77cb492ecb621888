"""Products of many rows straight from blocks: prompts, where decode has at most 8 rows.

A weight is unpacked to bf16 in registers once for up to 64 rows. Experts work through the slots
(row, pick) of a pass sorted by expert, in tiles cut on the device: nothing waits for the host.
The sums of a row run in the order of k whatever stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np

from ds4chat.formats.quants.base import QuantFormat
from ds4chat.ops.dispatch import Output, current
from ds4chat.ops.moe_kernels import MAX_EXPERTS, ExpertBlocks
from ds4chat.ops.spec import LANES, KernelSpec, Tolerance
from ds4chat.ops.unpack_kernels import STAGE_VALUES, TILE, constants, headers

TILE_ROWS = 64
"""Slots of an expert that share what is unpacked."""
_COLUMNS = TILE_ROWS // 8
_SIMDGROUPS = {"cuda": 4, "metal": 2, "host": 4}
_PLAN_THREADS = 256
_SUM_THREADS = 256
_PACK_THREADS = 256
_MAX_PLACES = 1 << 31
_ROUNDED = Tolerance(nmse=8e-6, reason="weights and outputs are rounded to bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slots:
    """Sorted `keys` `(S,)` and the `tiles` `(T, 4)` of them; see `kernels/wide.kernel`.

    A slot is one of `n_picks` of a row; columns hold eight slots of one expert.
    """

    keys: mx.array
    tiles: mx.array
    n_picks: int = 1
    n_experts: int = 1

    @property
    def n_columns(self) -> int:
        """Columns that any choice of experts fits in; a simdgroup reads four at a time."""
        return -(-int(self.keys.size) // 8) + self.n_experts + 4


@cache
def wide_spec(
    format_name: str, n_in: int, backend: str, *, limit: float | None = None
) -> KernelSpec:
    """The variant for a format and row length; with a `limit` two matrices and their gate."""
    is_gated = limit is not None
    return KernelSpec(
        name=f"wide_{'gated_' if is_gated else ''}{format_name.lower()}",
        source="wide.kernel",
        headers=headers(format_name),
        inputs=("x", "w", *(("up",) if is_gated else ()), "tiles", "keys"),
        outputs=("y",),
        threads=LANES * _SIMDGROUPS[backend],
        constants={
            "SIMDGROUPS": _SIMDGROUPS[backend],
            "COLUMNS": _COLUMNS,
            "HAS_TAIL": int(n_in % STAGE_VALUES[format_name] > 0),
            "IS_GATED": int(is_gated),
            "LIMIT": f"{limit or 0.0!r}f",
            **constants(format_name, n_in),
        },
        tolerance=_ROUNDED,
    )


@cache
def pack_spec(n_picks: int) -> KernelSpec:
    """The kernel that lays rows out for `wide_spec`."""
    return KernelSpec(
        name="pack_rows",
        source="pack_rows.kernel",
        inputs=("x", "tiles", "keys"),
        outputs=("packed",),
        threads=_PACK_THREADS,
        constants={"COLUMNS": _COLUMNS, "N_PICKS": n_picks, "THREADS": _PACK_THREADS},
    )


@cache
def plan_spec(n_experts: int) -> KernelSpec:
    """The kernel that cuts sorted keys into tiles."""
    return KernelSpec(
        name="moe_plan",
        source="moe_plan.kernel",
        inputs=("keys",),
        outputs=("tiles",),
        threads=_PLAN_THREADS,
        constants={
            "EXPERTS": n_experts,
            "TILE_ROWS": TILE_ROWS,
            "THREADS": _PLAN_THREADS,
        },
    )


@cache
def sum_spec(n_experts: int) -> KernelSpec:
    """The kernel that weighs and adds a row's experts."""
    return KernelSpec(
        name="moe_sum",
        source="moe_sum.kernel",
        inputs=("out", "picks", "weights"),
        outputs=("y",),
        threads=_SUM_THREADS,
        constants={"EXPERTS": n_experts, "THREADS": _SUM_THREADS},
    )


def wide_blocks(spec: KernelSpec, n_tiles: int, n_out: int) -> int:
    """Blocks of a launch of `wide_spec`."""
    wide = TILE if spec.constants["IS_GATED"] else 2 * TILE
    return n_tiles * -(-n_out // (wide * spec.threads // LANES))


def n_tiles_of(n_slots: int, n_experts: int) -> int:
    """Tiles that any choice of experts fits in."""
    return -(-n_slots // TILE_ROWS) + n_experts


def has_wide(quant: QuantFormat, x: mx.array) -> bool:
    """Whether rows of x can be multiplied with such blocks here."""
    return not current().is_reference and quant.name in STAGE_VALUES and x.dtype == mx.bfloat16


def product(x: mx.array, raw: mx.array, quant: QuantFormat, dtype: mx.Dtype) -> mx.array | None:
    """`(L, K)` bf16 times blocks `(N, row_bytes)` transposed: `(L, N)` in `dtype`, or None."""
    if not has_wide(quant, x) or 16 * x.size >= _MAX_PLACES:
        return None
    slots = _row_tiles(int(x.shape[0]))
    packed = _pack(x, slots)
    stack = ExpertBlocks(blocks=raw[None], quant=quant, n_in=int(x.shape[1]))
    return None if packed is None else _wide(packed, slots, stack, dtype)


def experts(
    x: mx.array, picks: mx.array, weights: mx.array,
    gate: ExpertBlocks, up: ExpertBlocks, down: ExpertBlocks, limit: float,
) -> mx.array | None:  # fmt: skip
    """`(L, D)` bf16 through each row's picks `(L, P)`: their weighted sum `(L, D)` float32.

    A row's experts are added in its own router order. None where no kernel does that.
    """
    n_experts, n_slots = int(gate.blocks.shape[0]), int(picks.size)
    is_small = n_experts <= MAX_EXPERTS and n_experts * n_slots < _MAX_PLACES
    n_bytes = 16 * (n_slots // 8 + n_experts + 5) * max(gate.n_in, down.n_in)
    if gate.quant is not up.quant or not is_small or n_bytes >= _MAX_PLACES or down.n_out % 4:
        return None
    if not has_wide(gate.quant, x) or not has_wide(down.quant, x):
        return None
    slots = _expert_tiles(picks, n_experts)
    packed = None if slots is None else _pack(x, slots)
    if slots is None or packed is None:
        return None
    hidden = _gated(packed, slots, gate, up, limit)
    out = None if hidden is None else _wide(hidden, slots, down, mx.float32)
    return None if out is None else _weighted_sum(out, picks, weights, n_experts)


def _expert_tiles(picks: mx.array, n_experts: int) -> _Slots | None:
    n_slots = int(picks.size)
    keys = mx.sort(picks.reshape(-1) * n_slots + mx.arange(n_slots, dtype=mx.int32))
    output = Output(shape=(n_tiles_of(n_slots, n_experts), 4), dtype=mx.int32)
    made = current().run(plan_spec(n_experts), [keys], 1, [output])
    if made is None:
        return None
    n_picks = int(picks.shape[1])
    return _Slots(keys=keys, tiles=made[0], n_picks=n_picks, n_experts=n_experts)


@cache
def _row_tiles(n_rows: int) -> _Slots:
    """The tiles of rows that all go through one matrix."""
    first = np.arange(0, n_rows, TILE_ROWS, dtype=np.int32)
    tiles = np.zeros((len(first), 4), np.int32)
    tiles[:, 1], tiles[:, 2] = first, np.minimum(n_rows - first, TILE_ROWS)
    tiles[:, 3] = first // 8
    made = _Slots(keys=mx.arange(n_rows, dtype=mx.int32), tiles=mx.array(tiles))
    mx.eval(made.keys, made.tiles)
    return made


def _pack(x: mx.array, slots: _Slots) -> mx.array | None:
    """Rows `(L, K)` as columns `(C, 8 * K)` for `_gated` and `_wide`."""
    output = Output(shape=(slots.n_columns, 8 * int(x.shape[1])), dtype=x.dtype)
    n_blocks = _COLUMNS * int(slots.tiles.shape[0])
    inputs = [x, slots.tiles, slots.keys]
    made = current().run(pack_spec(slots.n_picks), inputs, n_blocks, [output])
    return None if made is None else made[0]


def _gated(
    x: mx.array, slots: _Slots, gate: ExpertBlocks, up: ExpertBlocks, limit: float
) -> mx.array | None:
    """Activated hidden values, in columns as x: `(C, 8 * F)` bf16."""
    dispatcher = current()
    spec = wide_spec(gate.quant.name, gate.n_in, dispatcher.backend, limit=limit)
    output = Output(shape=(slots.n_columns, 8 * gate.n_out), dtype=mx.bfloat16)
    inputs = [x, gate.blocks, up.blocks, slots.tiles, slots.keys]
    n_blocks = wide_blocks(spec, int(slots.tiles.shape[0]), gate.n_out)
    made = dispatcher.run(spec, inputs, n_blocks, [output])
    return None if made is None else made[0]


def _wide(x: mx.array, slots: _Slots, w: ExpertBlocks, dtype: mx.Dtype) -> mx.array | None:
    """Columns `(C, 8 * K)` to `(S, N)` in the order of slots."""
    dispatcher = current()
    spec = wide_spec(w.quant.name, w.n_in, dispatcher.backend)
    output = Output(shape=(int(slots.keys.size), w.n_out), dtype=dtype)
    inputs = [x, w.blocks, slots.tiles, slots.keys]
    n_blocks = wide_blocks(spec, int(slots.tiles.shape[0]), w.n_out)
    made = dispatcher.run(spec, inputs, n_blocks, [output])
    return None if made is None else made[0]


def _weighted_sum(
    out: mx.array, picks: mx.array, weights: mx.array, n_experts: int
) -> mx.array | None:
    n_rows, n_out = int(picks.shape[0]), int(out.shape[1])
    output = Output(shape=(n_rows, n_out), dtype=mx.float32)
    n_blocks = n_rows * -(-n_out // (4 * _SUM_THREADS))
    made = current().run(sum_spec(n_experts), [out, picks, weights], n_blocks, [output])
    return None if made is None else made[0]
