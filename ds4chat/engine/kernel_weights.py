"""Weights for timed products: random, in a format of a file, as many copies as fool a cache.

Where a backend keeps blocks they stay in them; on the CPU they are float32, stored `[in, out]`,
as a model's are there. `most_bytes` tells what timing a product takes before it is tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.formats.quants import QuantFormat
from ds4chat.ops.blocks import SCALES_AT, Blocks
from ds4chat.ops.linear import Dense, Linear, Packed

MIN_COPIES, MAX_COPIES = 8, 64
_FEW_COPIES = 2  # of a weight that no cache holds
_NO_CACHE_BYTES = 256 << 20  # larger than a cache, in any number of copies
_DRAWN_ROWS = 64  # random rows of which the copies are put together
_NO_ISLAND = "indexer.attn_q_b"  # the one float matrix that does not want float32 inputs
_FLOATS = {"F16": mx.float16, "BF16": mx.bfloat16, "F32": mx.float32}
_MLX_LAYOUTS = {"Q8_0": (8, "affine"), "MXFP4": (4, "mxfp4")}
_DRAWN_GROWTH = 3  # random integers of 32 bits, their type, and what is made of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A kind of weight that a step multiplies by `per_step` times.

    `n_experts` 0: a matrix; else `n_stacks` stacks (gate and up are read in one go) of which a
    row chooses `n_used` experts. `n_groups` above 1: one matrix for each group of the input.
    """

    name: str
    quant: QuantFormat
    n_in: int
    n_out: int
    per_step: int
    n_experts: int = 0
    n_used: int = 0
    n_stacks: int = 1
    n_groups: int = 1

    @property
    def n_bytes(self) -> int:
        """Bytes of one matrix, of stacks those of one expert."""
        return self.n_stacks * self.n_out * self.quant.row_bytes(self.n_in)

    @property
    def is_island(self) -> bool:
        """Whether its inputs are float32 on every device (mixers, router, compressors)."""
        return self.quant.name in _FLOATS and self.name != _NO_ISLAND


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How to time: bytes of all copies of a weight, launches in a run, runs, type of inputs.

    `keeps_blocks`: the backend's models keep a file's blocks; else everything is float32.
    """

    copies_bytes: int
    n_launches: int
    repeat: int
    dtype: mx.Dtype
    keeps_blocks: bool = True


def most_bytes(product: Product, setting: Setting) -> int:
    """Bytes that timing this product takes at the most, its neighbours' freed before."""
    kept, stock = _kept_bytes(product, setting), product.n_bytes
    drawn = 4 * product.n_in * product.n_out
    drawn = drawn if product.quant.name in _FLOATS else stock // product.n_stacks
    n_own, n_stock, n_at_once = _n_copies(kept, setting), _n_copies(stock, setting), 1
    if product.n_experts:  # all of a stack are made at once
        n_own = n_stock = n_at_once = _n_experts(product, setting)
    own = n_own * kept + n_at_once * kept // product.n_stacks
    made = n_stock * stock + _DRAWN_GROWTH * n_at_once * drawn
    return max(own, made) if has_stock(product) else own


def _kept_bytes(product: Product, setting: Setting) -> int:
    """Bytes of one matrix (of stacks one expert) as the backend keeps it."""
    if setting.keeps_blocks:
        return product.n_bytes
    return 4 * product.n_stacks * product.n_in * product.n_out


def _n_copies(n_bytes: int, setting: Setting) -> int:
    """Copies in rotation: eight at least; of a weight too large for a CPU's caches, fewer."""
    least = MIN_COPIES
    if not setting.keeps_blocks:
        least = min(MIN_COPIES, max(_FEW_COPIES, _NO_CACHE_BYTES // n_bytes))
    return min(MAX_COPIES, max(least, -(-setting.copies_bytes // n_bytes)))


def _n_experts(product: Product, setting: Setting) -> int:
    """Experts of the timed stack: eight rows' choices at the least, for eight launches."""
    n_bytes = _kept_bytes(product, setting)
    wanted = max(MIN_COPIES * product.n_used, setting.copies_bytes // n_bytes)
    return max(product.n_used, min(product.n_experts, wanted))


def own_weights(product: Product, setting: Setting) -> list[Linear]:
    """Copies of a weight as the backend keeps one; of experts one stack for each of theirs."""
    if not setting.keeps_blocks:
        return _dense_weights(product, setting)
    drawn = mx.array(random_rows(product.quant, _DRAWN_ROWS, product.n_in))
    shape: tuple[int, ...] = (product.n_out,)
    n_copies = _n_copies(_kept_bytes(product, setting), setting)
    if product.n_experts:
        shape = (_n_experts(product, setting), product.n_out)
        n_copies = product.n_stacks
    copies: list[Linear] = []
    for _ in range(n_copies):
        raw = drawn[mx.random.randint(0, _DRAWN_ROWS, shape)]
        mx.eval(raw)
        copies.append(Blocks(raw=raw, quant=product.quant))
    return copies


def _dense_weights(product: Product, setting: Setting) -> list[Linear]:
    """The same in float32, `[in, out]`: a few random columns over and over."""
    n_groups = product.n_groups
    lead: tuple[int, ...] = (n_groups,) if n_groups > 1 else ()
    n_out = product.n_out // n_groups
    n_copies = _n_copies(_kept_bytes(product, setting), setting)
    if product.n_experts:
        lead, n_copies = (_n_experts(product, setting),), product.n_stacks
    copies: list[Linear] = []
    for _ in range(n_copies):
        drawn = mx.random.normal((product.n_in, 1, min(_DRAWN_ROWS, n_out)))
        n_times = -(-n_out // drawn.shape[-1])
        shape = (*lead, product.n_in, n_times, drawn.shape[-1])
        wide = mx.broadcast_to(drawn, shape).reshape(*lead, product.n_in, -1)
        weight = mx.contiguous(wide[..., :n_out])
        mx.eval(weight)
        copies.append(Dense(weight=weight))
    return copies


def random_rows(quant: QuantFormat, n_rows: int, n_in: int) -> NDArray[np.uint8]:
    """`(n_rows, row_bytes)`: random blocks with small finite scales."""
    rng = np.random.default_rng(n_in)
    if quant.block_values == 1:
        values = rng.standard_normal((n_rows, n_in)).astype(np.float32)
        array = mx.array(values).astype(_FLOATS[quant.name]).view(mx.uint8)
        return np.array(array)
    n_blocks = n_rows * n_in // quant.block_values
    blocks = rng.integers(0, 256, (n_blocks, quant.block_bytes), dtype=np.uint8)
    for at in SCALES_AT.get(quant.name, ()):
        halves = rng.uniform(0.001, 0.01, (n_blocks, 1)).astype("<f2")
        blocks[:, at : at + 2] = halves.view(np.uint8)
    if quant.name == "MXFP4":
        blocks[:, 0] = rng.integers(115, 122, n_blocks)
    return blocks.reshape(n_rows, -1)


def has_stock(product: Product) -> bool:
    """Whether MLX has a storage of its own for the format."""
    is_float = product.quant.name in _FLOATS and product.n_groups == 1
    return is_float or product.quant.name in _MLX_LAYOUTS


def stock_weights(product: Product, setting: Setting) -> list[Linear]:
    """MLX's own storage of the format; empty where it has none."""
    if not has_stock(product):
        return []
    name = product.quant.name
    lead: tuple[int, ...] = ()
    n_copies = _n_copies(product.n_bytes, setting)
    if product.n_experts:
        lead, n_copies = (_n_experts(product, setting),), product.n_stacks
    if name in _MLX_LAYOUTS:
        return [_packed(product, lead) for _ in range(n_copies)]
    copies: list[Linear] = []
    for _ in range(n_copies):
        weight = mx.random.normal((*lead, product.n_in, product.n_out)).astype(_FLOATS[name])
        mx.eval(weight)
        copies.append(Dense(weight=weight))
    return copies


def _packed(product: Product, lead: tuple[int, ...]) -> Packed:
    bits, mode = _MLX_LAYOUTS[product.quant.name]
    shape = (*lead, product.n_out)
    groups = (*shape, product.n_in // 32)
    weight = mx.random.randint(0, 1 << 31, (*shape, product.n_in * bits // 32)).astype(
        mx.uint32
    )
    if mode == "mxfp4":
        scales, biases = mx.random.randint(115, 122, groups).astype(mx.uint8), None
    else:
        scales = mx.random.uniform(0.001, 0.01, groups).astype(mx.bfloat16)
        biases = -128 * scales
    packed = Packed(
        weight=weight, scales=scales, biases=biases, bits=bits, group_size=32, mode=mode
    )
    mx.eval(packed.arrays())
    return packed
