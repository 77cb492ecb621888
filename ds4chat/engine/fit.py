"""Whether a model and its context fit into memory, decided before weights are read.

Pure: sizes in bytes come in, words come out. Estimates are upper bounds of what the KV state
takes (growing arrays are half as large again as needed) and of what a decode pass of eight rows
needs to attend it, so "fits" can be trusted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx

from ds4chat.errors import EngineError
from ds4chat.model.config import TargetConfig
from ds4chat.model.kv import MAX_ROWS, raw_span, ring_size
from ds4chat.ops.attention_kernels import sums_bytes
from ds4chat.sizes import size

MIN_CTX = 2048
"""A context below this is not worth loading a large model for."""
_GROWTH = 1.5  # of the compressed rows: they grow by half
_MARKS = 4  # the rings themselves, and three marks of them
_IN_FLIGHT = 2  # layers whose attention is not added up: MLX waits for one where memory ends
_CTX_STEP = 1024
_WIRED_ROOM = 2 << 30  # left to the system behind a raised wired limit, at the least


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a model takes: weights, rings and working memory, and each token of context."""

    weights: int
    fixed: int
    token: float

    def at(self, ctx: int) -> int:
        """All bytes with a context of `ctx` tokens filled."""
        return self.weights + self.fixed + math.ceil(self.token * ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What MLX may use now (`usable`), and what the machine has; `what` names it in words.

    `wired`: macOS limits what the GPU may wire, and a person can raise that limit.
    """

    usable: int
    total: int
    what: str
    wired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The context to open with, and what to tell the person."""

    ctx: int
    notes: tuple[str, ...] = ()


def needs(
    config: TargetConfig,
    *,
    weights: int,
    itemsize: int,
    n_stages: int,
    chunk: int,
    recorded: int = 0,
) -> Needs:
    """Estimate what a model takes.

    Args:
        config: the target's geometry.
        weights: bytes of all weights as they are kept, the drafter's included.
        itemsize: bytes of an activation.
        n_stages: stages of the drafter; 0 without one.
        chunk: prompt tokens evaluated at once.
        recorded: bytes that recorded passes may hold.
    """
    block = config.block
    window_slots = ring_size(block.window)
    window = window_slots * block.head_dim * itemsize
    fixed, token = n_stages * window, 0.0
    for ratio in config.compress_ratios:
        fixed += window
        if not ratio:
            continue
        lanes = 2 if ratio == 4 else 1
        index_dim = config.index_dim if ratio == 4 else 0
        fixed += ring_size(raw_span(ratio)) * 2 * lanes * (block.head_dim + index_dim) * 4
        token += (block.head_dim * itemsize + index_dim * 4) / ratio
    streams = block.dim * block.n_streams * 4
    hidden = (block.n_experts_used + block.n_shared) * block.expert_dim * 3 * 4
    heads = block.n_heads * block.head_dim * 3 * 4
    working = chunk * 4 * (streams + hidden + heads) + MAX_ROWS * config.n_vocab * 4
    token *= _GROWTH
    if itemsize == mx.bfloat16.size:
        fullest = min((ratio for ratio in config.compress_ratios if ratio), default=0)
        sums, slot_sums = sums_bytes(window_slots, block.n_heads, block.head_dim)
        working += _IN_FLIGHT * MAX_ROWS * sums
        token += _IN_FLIGHT * MAX_ROWS * slot_sums / fullest if fullest else 0.0
    return Needs(weights=weights, fixed=_MARKS * fixed + working + recorded, token=token)


def largest_ctx(wants: Needs, memory: Memory) -> int:
    """The largest context that fits, in whole thousands; 0: not even an empty one."""
    left = memory.usable - wants.weights - wants.fixed
    if left < 0:
        return 0
    if wants.token == 0:
        return 1 << 40
    tokens = int(left / wants.token)
    return tokens if tokens < _CTX_STEP else tokens // _CTX_STEP * _CTX_STEP


def judge(wants: Needs, memory: Memory, ctx: int, *, is_asked: bool) -> Fit:
    """Decide the context.

    Args:
        wants: what the model takes.
        memory: what there is.
        ctx: the context asked for, or the default.
        is_asked: whether a person named it; their number stands, with a warning.

    Raises:
        EngineError: the weights alone are larger than the machine's memory.
    """
    if wants.weights > memory.total:
        raise EngineError(
            f"the weights take {size(wants.weights)} of memory here, but {memory.what} has "
            f"{size(memory.total)}",
            "Use a smaller quantisation, another --backend, or a machine with more memory.",
        )
    if wants.at(ctx) <= memory.usable:
        return Fit(ctx=ctx)
    largest = largest_ctx(wants, memory)
    if largest >= MIN_CTX and not is_asked:
        note = (
            f"the context is {largest:,} tokens instead of {ctx:,}: more does not fit into the "
            f"{size(memory.usable)} that {memory.what} offers"
        )
        return Fit(ctx=largest, notes=(note, *_wired_advice(wants, memory, ctx)))
    fits = f"the largest context that fits is {largest:,} tokens" if largest else "none fits"
    note = (
        f"a full context of {ctx:,} tokens takes {size(wants.at(ctx))}, and {memory.what} "
        f"offers {size(memory.usable)}: {fits}"
    )
    return Fit(ctx=ctx, notes=(note, *_wired_advice(wants, memory, ctx)))


def _wired_advice(wants: Needs, memory: Memory, ctx: int) -> tuple[str, ...]:
    """How to let macOS's GPU use more of the memory, where that would do."""
    room = max(_WIRED_ROOM, memory.total // 16)
    if not memory.wired or wants.at(ctx) > memory.total - room:
        return ()
    megabytes = -(-wants.at(ctx) // (1 << 20)) + 512
    return (
        "macOS keeps the rest of the memory from the GPU; until the next restart this gives it "
        f"enough: sudo sysctl iogpu.wired_limit_mb={megabytes}",
    )
