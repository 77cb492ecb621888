"""Timed products of single weights, at a model's shapes and in its formats.

Each launch reads another copy of its weight, so that no cache helps, and waits for the one
before; the time of the waiting itself is taken off. One product's weights are there at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx
import numpy as np

from ds4chat.engine.bench_runs import Clock
from ds4chat.engine.copies import copy_once
from ds4chat.engine.kernel_weights import (
    MIN_COPIES,
    Product,
    Setting,
    own_weights,
    stock_weights,
)
from ds4chat.formats.quants import QuantFormat
from ds4chat.model.binding import Kind, Place, target_layout
from ds4chat.model.config import TargetConfig
from ds4chat.ops import moe_kernels
from ds4chat.ops.blocks import Blocks, upload
from ds4chat.ops.dispatch import current
from ds4chat.ops.linear import Dense, Linear
from ds4chat.ops.moe_kernels import ExpertBlocks
from ds4chat.ops.qmatmul import has_kernel

OWN, STOCK = "own", "stock"
_GATE, _UP = "ffn_gate_exps", "ffn_up_exps"
_LIMIT = 10.0  # clamp of the activation between gate, up and down
_RUN_S = 0.5  # about that long is a run on a CPU, at most
_LEAST_SHARE = 0.1  # of a timed launch with its waiting: below that the noise is larger
_PICKED = ("token_embd.weight", "_ape.weight")  # rows are picked from these, not multiplied

Launch = Callable[[mx.array, int], mx.array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one launch in each run; `n_bytes` of weights were read by each."""

    product: Product
    rows: int
    who: str  # OWN or STOCK
    seconds: tuple[float, ...]
    n_bytes: float


def products_of(
    config: TargetConfig, format_of: Callable[[Place], QuantFormat]
) -> list[Product]:
    """What a decode step of this model multiplies by, in the order of the layout."""
    counts: dict[tuple[str, QuantFormat, tuple[int, ...]], int] = {}
    for place in target_layout(config):
        is_picked = place.name.endswith(_PICKED)
        if place.kind is Kind.MATRIX and not is_picked and not place.is_optional:
            name = place.name.removesuffix(".weight")
            name = name.split(".", 2)[2] if name.startswith("blk.") else name
            key = (name, format_of(place), place.shape)
            counts[key] = counts.get(key, 0) + 1
    block = config.block
    products = [
        Product(
            name=name,
            quant=quant,
            n_in=shape[-1],
            n_out=shape[-2],
            per_step=number,
            n_experts=shape[0] if len(shape) == 3 else 0,
            n_used=block.n_experts_used if len(shape) == 3 else 0,
            n_groups=block.n_groups if name == "attn_output_a" else 1,
        )
        for (name, quant, shape), number in counts.items()
    ]
    return _paired(products)


def _paired(products: Sequence[Product]) -> list[Product]:
    """Gate and up of one format as one product, as they are multiplied."""
    ups = {(p.quant, p.per_step): p for p in products if p.name == _UP}
    found, taken = [], []
    for product in products:
        up = ups.get((product.quant, product.per_step)) if product.name == _GATE else None
        if up is not None:
            taken.append(up)
            found.append(replace(product, name=f"{_GATE}, {_UP}", n_stacks=2))
        else:
            found.append(product)
    return [product for product in found if product not in taken]


def time_product(
    product: Product,
    rows: Sequence[int],
    setting: Setting,
    clock: Clock = time.perf_counter,
) -> Iterator[Timing]:
    """Time one product for each row count, ours and where MLX has the format its own."""
    yield from _time(OWN, product, own_weights(product, setting), rows, setting, clock)
    mx.clear_cache()
    try:
        yield from _time(STOCK, product, stock_weights(product, setting), rows, setting, clock)
    except RuntimeError:  # MLX has not this product on this device: nothing stands beside ours
        return
    finally:
        mx.clear_cache()


def _time(
    who: str,
    product: Product,
    copies: Sequence[Linear],
    rows: Sequence[int],
    setting: Setting,
    clock: Clock,
) -> Iterator[Timing]:
    for n_rows in rows if copies else ():
        dtype = mx.float32 if product.is_island else setting.dtype
        x = _input(product, n_rows, dtype)
        launch, n_bytes = _launch(product, copies, n_rows)
        if not setting.keeps_blocks:
            setting = replace(setting, n_launches=_n_launches(launch, x, setting, clock))
        seconds = time_launches(launch, x, setting, clock)
        yield Timing(
            product=product, rows=n_rows, who=who, seconds=tuple(seconds), n_bytes=n_bytes
        )


def _n_launches(launch: Launch, x: mx.array, setting: Setting, clock: Clock) -> int:
    """Launches of a run on a CPU: as many as asked for, fewer where they would take long."""
    for _ in range(2):  # the first one touches the weights' pages
        start = clock()
        mx.eval(launch(x, 0))
        seconds = clock() - start
    return max(1, min(setting.n_launches, int(_RUN_S / max(seconds, 1e-9))))


def time_launches(
    launch: Launch, x: mx.array, setting: Setting, clock: Clock = time.perf_counter
) -> list[float]:
    """Net seconds of a launch in a chain, one for each run."""
    order = range(setting.n_launches)

    def chain(step: Launch) -> float:
        at = x
        for i in order:
            at = _behind(x, step(at, i))
        start = clock()  # what builds the graph is no part of a launch
        mx.eval(at)  # sync: the end of a timed run
        return (clock() - start) / setting.n_launches

    mx.eval(launch(x, 0))
    runs = [(chain(launch), chain(lambda at, _: at)) for _ in range(setting.repeat + 1)][1:]
    alone = float(np.median([waiting for _, waiting in runs]))
    return [max(whole - alone, _LEAST_SHARE * whole) for whole, _ in runs]


def _behind(x: mx.array, made: mx.array) -> mx.array:
    """X, made to wait for `made`."""
    first = made.reshape(made.shape[0], -1)[:, :1].astype(x.dtype) * 0
    return x + first.reshape(first.shape[0], *(1 for _ in x.shape[1:]))


def copy_bandwidth(n_bytes: int, repeat: int, clock: Clock = time.perf_counter) -> float:
    """Bytes read and written in a second by copies of `n_bytes`."""
    runs = [copy_once(n_bytes, clock) for _ in range(repeat + 1)][1:]
    return float(np.median([copied / max(seconds, 1e-9) for copied, seconds in runs]))


def upload_bandwidth(n_bytes: int, repeat: int, clock: Clock = time.perf_counter) -> float:
    """Bytes a second from host to device, as weights are loaded."""
    chunk = np.zeros(max(1, n_bytes // 8), np.uint8)
    rates = []
    for _ in range(repeat + 1):
        start = clock()
        upload(chunk for _ in range(8))
        rates.append(8 * chunk.nbytes / max(clock() - start, 1e-9))
    return float(np.median(rates[1:]))


def _input(product: Product, rows: int, dtype: mx.Dtype) -> mx.array:
    """Rows as the product's caller gives them."""
    shape: tuple[int, ...] = (rows, product.n_in)
    if product.n_experts:  # gate and up share a row, down has one for each pick
        shape = (rows, 1 if product.n_stacks == 2 else product.n_used, 1, product.n_in)
    elif product.n_groups > 1:
        shape = (rows, product.n_groups, product.n_in)
    x = mx.random.normal(shape).astype(dtype)
    mx.eval(x)
    return x


def _launch(product: Product, copies: Sequence[Linear], rows: int) -> tuple[Launch, float]:
    """How launch i multiplies, and the mean bytes that a launch must read."""
    n_bytes = _read_bytes(product, copies)
    if not product.n_experts:
        return partial(_multiply, copies, product.n_groups > 1), n_bytes
    n_experts = int(copies[0].arrays()[0].shape[0])
    rng = np.random.default_rng(rows)
    picks = [
        np.stack([rng.permutation(n_experts)[: product.n_used] for _ in range(rows)])
        for _ in range(MIN_COPIES)
    ]
    distinct = float(np.mean([len(np.unique(pick)) for pick in picks]))
    arrays = [mx.array(pick.astype(np.int32)) for pick in picks]
    mx.eval(arrays)
    own = [part for part in copies if isinstance(part, Blocks)]
    has_kernels = not current().is_reference and has_kernel(product.quant, product.n_in)
    if has_kernels and len(own) == len(copies):
        stacks = [ExpertBlocks(blocks=p.raw, quant=p.quant, n_in=p.n_in) for p in own]
        return partial(_by_kernel, stacks, arrays), distinct * n_bytes
    return partial(_choose, copies, arrays), distinct * n_bytes


def _read_bytes(product: Product, copies: Sequence[Linear]) -> float:
    """Bytes of one matrix, of stacks those of one expert, as the copies hold them."""
    first = copies[0]
    if not isinstance(first, Dense):
        return float(product.n_bytes)
    n_experts = first.weight.shape[0] if product.n_experts else 1
    return product.n_stacks * first.weight.nbytes / n_experts


def _multiply(copies: Sequence[Linear], is_grouped: bool, x: mx.array, i: int) -> mx.array:
    weight = copies[i % len(copies)]
    return weight.grouped(x) if is_grouped else weight(x)


def _choose(
    stacks: Sequence[Linear], picks: Sequence[mx.array], x: mx.array, i: int
) -> mx.array:
    made = [stack.expert(x, picks[i % len(picks)]) for stack in stacks]
    return made[0] if len(made) == 1 else made[0] + made[1]


def _by_kernel(
    stacks: Sequence[ExpertBlocks], picks: Sequence[mx.array], x: mx.array, i: int
) -> mx.array:
    """The launch that a model makes: gate, up and activation, or down and weighted sum."""
    chosen = picks[i % len(picks)]
    if len(stacks) == 2:
        return moe_kernels.gate_up(x[:, 0, 0], chosen, stacks[0], stacks[1], _LIMIT)
    weights = mx.ones(chosen.shape, dtype=mx.float32)
    return moe_kernels.down(x[:, :, 0], chosen, weights, stacks[0])
