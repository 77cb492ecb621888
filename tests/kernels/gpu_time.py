"""How long launches take at Flash shapes, next to the copy bandwidth and MLX's own products.

Every launch reads another of at least 8 copies of its weights (and of at least 1 GB in all), so
no cache helps. Graphs are built before the clock starts. Launches are timed twice by the clock:
independent of each other (MLX may overlap them), and each behind the one before through a small
op whose own time is taken off; both hold what MLX needs to encode a launch. Where PyTorch is
installed, its profiler adds how long the kernel itself ran.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from ds4chat.formats.quants.base import format_named
from ds4chat.ops.attention_kernels import decode
from ds4chat.ops.dispatch import Dispatcher, use
from ds4chat.ops.hyper import HyperWeights, Mix
from ds4chat.ops.hyper_kernels import Flow, read, write
from ds4chat.ops.moe_kernels import ExpertBlocks, down, gate_up
from ds4chat.ops.qmatmul import BlockWeight, qmatmul
from ds4chat.ops.rope import RopeTable
from tests.kernels.blocks import random_blocks
from tests.kernels.gpu_clock import Launch, Timed, copy_bandwidth, measure

N_COPIES = 8
COPIES_BYTES = 1 << 30
MAX_COPIES = 64
ROW_COUNTS = (1, 2, 4, 6, 8)
SHAPES = ((4096, 16384), (4096, 1024), (1024, 32768))
FORMATS = ("Q8_0", "IQ2_XXS", "Q2_K", "Q4_K", "MXFP4", "BF16")
LAYER = (
    ("kv", 4096, 512, 1),
    ("out_a", 4096, 8192, 8),
    ("out_b", 8192, 4096, 1),
    ("shared gate", 4096, 2048, 1),
    ("shared down", 2048, 4096, 1),
    ("head", 4096, 129280, 1),
)
"""The other Q8_0 products of a Flash layer: name, K, N, groups."""
N_EXPERTS = 256
N_PICKS = 6
EXPERTS = (("IQ2_XXS", "Q2_K"), ("MXFP4", "MXFP4"))
D, F = 4096, 2048

tell = partial(print, flush=True)


def time_all(backend: str, wanted: str, deadline: float) -> list[dict[str, Any]]:
    """Print a table and return it."""
    use(Dispatcher(backend=backend))
    copy_gbps = copy_bandwidth()
    tell(f"copy bandwidth {copy_gbps:.0f} GB/s (bytes read and written)")
    results: list[dict[str, Any]] = [{"label": "copy", "gbps": copy_gbps}]
    for timed in everything(wanted):
        if time.monotonic() > deadline:
            tell(f"out of time before {timed.label}")
            break
        try:
            result = measure(timed, copy_gbps)
        except Exception as error:  # noqa: BLE001  the next one must still be timed
            tell(f"{timed.label} FAILED: {str(error)[:300]}")
            continue
        tell(
            f"{result['label']:44} {result['chained_us']:8.1f} us {result['gbps']:6.0f} GB/s"
            f" {result['percent']:5.1f} %   free {result['free_us']:8.1f} us"
            f"   kernel {result['kernel_us'] or 0:8.1f} us",
        )
        results.append(result)
    return results


def everything(wanted: str) -> Iterator[Timed]:
    """All that is timed."""
    for maker in (_products, _experts, _streams, _attention, _stock, _stock_experts):
        yield from (t for t in maker(wanted))


def _n_copies(n_bytes: int) -> int:
    return min(MAX_COPIES, max(N_COPIES, -(-COPIES_BYTES // n_bytes)))


def shuffled_copies(base: mx.array, n_rows: int, n_copies: int) -> list[mx.array]:
    """Matrices of `n_rows` rows drawn from those of `base`."""
    copies = [base[mx.random.randint(0, base.shape[0], (n_rows,))] for _ in range(n_copies)]
    mx.eval(copies)
    return copies


def _x(rows: int, n_in: int) -> mx.array:
    x = mx.random.normal((rows, n_in)).astype(mx.bfloat16)
    mx.eval(x)
    return x


def _products(wanted: str) -> Iterator[Timed]:
    shapes = [(name, "", n_in, n_out, 1) for name in FORMATS for n_in, n_out in SHAPES]
    shapes += [("Q8_0", f"{of} ", n_in, n_out, n) for of, n_in, n_out, n in LAYER]
    for name, of, n_in, n_out, n_groups in shapes:
        label = f"qmatmul {name} {of}K{n_in} N{n_out}"
        if wanted in label:
            yield from _product(label, name, n_in, n_out, n_groups)


def _product(label: str, name: str, n_in: int, n_out: int, n_groups: int) -> Iterator[Timed]:
    quant = format_named(name)
    n_bytes = n_out * quant.row_bytes(n_in)
    base = mx.array(random_blocks(np.random.default_rng(0), name, 256, n_in))
    copies = [
        BlockWeight(blocks=c, quant=quant, n_in=n_in)
        for c in shuffled_copies(base, n_out, _n_copies(n_bytes))
    ]
    for rows in ROW_COUNTS:
        yield Timed(
            label=f"{label} rows {rows}",
            launch=partial(_own, copies, n_groups),
            n_bytes=n_bytes,
            n_copies=len(copies),
            x=_x(rows, n_groups * n_in),
        )


def _expert_stack(name: str, n_in: int, n_out: int) -> ExpertBlocks:
    quant = format_named(name)
    base = mx.array(random_blocks(np.random.default_rng(1), name, 512, n_in))
    blocks = base[mx.random.randint(0, 512, (N_EXPERTS * n_out,))]
    blocks = blocks.reshape(N_EXPERTS, n_out, -1)
    mx.eval(blocks)
    return ExpertBlocks(blocks=blocks, quant=quant, n_in=n_in)


def _picks(rows: int) -> list[mx.array]:
    """Distinct experts for every row of a launch, other ones for each of 16 launches."""
    rng = np.random.default_rng(2)
    n = rows * N_PICKS
    return [
        mx.array(rng.permutation(N_EXPERTS)[:n].reshape(rows, N_PICKS).astype(np.int32))
        for _ in range(16)
    ]


def _experts(wanted: str) -> Iterator[Timed]:
    """Both launches of the routed experts at Flash's widths."""
    for name, down_name in EXPERTS:
        label = f"moe_gate_up {name} {D}>{F}"
        if wanted in label:
            gate, up = _expert_stack(name, D, F), _expert_stack(name, D, F)
            for rows in (1, 6):
                n_bytes = 2 * rows * N_PICKS * F * gate.quant.row_bytes(D)
                run = partial(_gate_up, gate, up, _picks(rows))
                yield _expert_timed(f"{label} rows {rows}", run, n_bytes, _x(rows, D))
            del gate, up
        label = f"moe_down {down_name} {F}>{D}"
        if wanted in label:
            stack = _expert_stack(down_name, F, D)
            for rows in (1, 6):
                n_bytes = rows * N_PICKS * D * stack.quant.row_bytes(F)
                weights = mx.full((rows, N_PICKS), 0.25)
                mx.eval(weights)
                run = partial(_down, stack, _picks(rows), weights)
                x = _x(rows * N_PICKS, F).reshape(rows, N_PICKS, F)
                yield _expert_timed(f"{label} rows {rows}", run, n_bytes, x)
            del stack


def _expert_timed(label: str, launch: Launch, n_bytes: int, x: mx.array) -> Timed:
    mx.eval(x)
    return Timed(label=label, launch=launch, n_bytes=n_bytes, n_copies=16, x=x)


def _gate_up(
    gate: ExpertBlocks, up: ExpertBlocks, picks: Sequence[mx.array], x: mx.array, i: int
) -> mx.array:
    return gate_up(x, picks[i], gate, up, 10.0)


def _down(
    w: ExpertBlocks, picks: Sequence[mx.array], weights: mx.array, x: mx.array, i: int
) -> mx.array:
    return down(x, picks[i], weights, w)


def _streams(wanted: str) -> Iterator[Timed]:
    """Writing to the streams and reading them for the next branch: two launches."""
    label = f"hyper write + read D{D}"
    if wanted not in label:
        return
    readers = [
        HyperWeights(
            fn=mx.random.normal((4 * D, 24)) * 0.01,
            scale=mx.ones((24,)),
            base=mx.zeros((24,)),
            n_streams=4,
            rounds=20,
            hc_eps=1e-6,
            rms_eps=1e-6,
        )
        for _ in range(MAX_COPIES)
    ]
    mx.eval([[r.fn, r.scale, r.base] for r in readers])
    for rows in (1, 6):
        streams, norm = mx.random.normal((rows, 4, D)), mx.ones((D,))
        mix = Mix(post=mx.ones((rows, 4)), carry=mx.full((rows, 4, 4), 0.25))
        mx.eval(streams, norm, mix.post, mix.carry)
        yield Timed(
            label=f"{label} rows {rows}",
            launch=partial(_write_read, streams, mix, readers, norm),
            n_bytes=4 * D * 24 * 4 + rows * D * (3 * 16 + 2 * 2),
            n_copies=MAX_COPIES,
            x=_x(rows, D),
        )


def _write_read(
    streams: mx.array,
    mix: Mix,
    readers: Sequence[HyperWeights],
    norm: mx.array,
    x: mx.array,
    i: int,
) -> mx.array:
    flow = write(Flow(streams=streams), mix, x, readers[i])
    return read(flow, readers[i], norm, mx.bfloat16)[0]


def _attention(wanted: str) -> Iterator[Timed]:
    """Decode attention of 64 heads over a ring of 136 rows and some compressed rows."""
    for n_keys in (64, 504):
        label = f"attention H64 d512 keys {136 + n_keys}"
        if wanted not in label:
            continue
        parts = [
            [mx.random.normal((n, 512)).astype(mx.bfloat16) for n in (136, n_keys)]
            for _ in range(N_COPIES)
        ]
        mx.eval(parts)
        for rows in (1, 6):
            yield Timed(
                label=f"{label} rows {rows}",
                launch=partial(_attend, parts, mx.zeros((rows, 137 + n_keys)), _angles(rows)),
                n_bytes=(136 + n_keys) * 512 * 2,
                n_copies=N_COPIES,
                x=_x(rows, 64 * 512),
            )


def _angles(rows: int) -> RopeTable:
    return RopeTable(cos=mx.ones((rows, 32)), sin=mx.zeros((rows, 32)))


def _attend(
    parts: Sequence[Sequence[mx.array]], mask: mx.array, table: RopeTable, x: mx.array, i: int
) -> mx.array:
    window, keys = parts[i]
    made = decode(x, window, keys, mask, mx.zeros(64), table, eps=1e-6, dtype=mx.bfloat16)
    assert made is not None, "the attention kernel is not used here"
    return made


def _stock_experts(wanted: str) -> Iterator[Timed]:
    """MLX's own gathered product: 2 bits in groups of 32, one of the three matrices."""
    label = f"stock gather 2-bit {D}>{F}"
    if wanted not in label:
        return
    w = mx.random.randint(0, 1 << 30, (N_EXPERTS, F, D // 16)).astype(mx.uint32)
    scales = mx.full((N_EXPERTS, F, D // 32), 0.01, dtype=mx.bfloat16)
    mx.eval(w, scales)
    for rows in (1, 6):
        yield Timed(
            label=f"{label} rows {rows}",
            launch=partial(_gather, w, scales, _picks(rows)),
            n_bytes=rows * N_PICKS * F * (D // 4 + D // 32 * 4),
            n_copies=16,
            x=_x(rows, D),
        )


def _gather(
    w: mx.array, scales: mx.array, picks: Sequence[mx.array], x: mx.array, i: int
) -> mx.array:
    rows = x[:, None, None, :]
    return mx.gather_qmm(
        rows, w, scales, scales, rhs_indices=picks[i], transpose=True, group_size=32, bits=2
    )


def _stock(wanted: str) -> Iterator[Timed]:
    """MLX's own quantised product: 8 bits in groups of 32, as Q8_0."""
    for n_in, n_out in SHAPES:
        label = f"stock 8-bit K{n_in} N{n_out}"
        if wanted not in label:
            continue
        n_bytes = n_out * n_in * 9 // 8
        parts = []
        for _ in range(_n_copies(n_bytes)):
            w = mx.random.normal((n_out, n_in)).astype(mx.bfloat16)
            parts.append(mx.quantize(w, group_size=32, bits=8))
            mx.eval(parts[-1])
        for rows in (1, 6, 8):
            yield Timed(
                label=f"{label} rows {rows}",
                launch=partial(_mlx_own, parts),
                n_bytes=n_bytes,
                n_copies=len(parts),
                x=_x(rows, n_in),
            )


def _own(copies: Sequence[BlockWeight], n_groups: int, x: mx.array, i: int) -> mx.array:
    return qmatmul(x, copies[i], n_groups=n_groups)


def _mlx_own(parts: Sequence[tuple[mx.array, ...]], x: mx.array, i: int) -> mx.array:
    w, scales, biases = parts[i]
    return mx.quantized_matmul(x, w, scales, biases, transpose=True, group_size=32, bits=8)
