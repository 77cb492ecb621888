"""Does a pass of several rows give each row the bits of a pass of its own?

The claim that speculative text equals plain text rests on it, so it is tried on the real model
and device before it is believed: the same tokens go through one by one and in passes of 2 to 8
rows, and logits and state must be equal bit for bit. The tokens stand where the number of
attended slots changes, a row of ratio 128 is completed, and both window borders lie behind.

A probe at a few context lengths speaks for all of them only where the sums whose length grows
with the context run in one order anyway: on backends that promise it, and where these sums are
this program's own kernels. Everything else has the same shapes at every context length.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from ds4chat.engine.runner import Runner, Timeline
from ds4chat.model.kv import MAX_ROWS
from ds4chat.model.target import Target
from ds4chat.ops.attention_kernels import order_is_fixed

_N_TOKENS = 12
_START = 250  # 64 rows of ratio 4 are full at 256; what stands before does not matter


def can_verify_in_passes(runner: Runner, *, is_order_fixed: bool) -> bool:
    """Whether a block may be verified in one pass on this device; tried, not assumed.

    Args:
        runner: must run several rows as a pass.
        is_order_fixed: the backend promises one order of sums for every shape.
    """
    if is_order_fixed:
        return is_row_exact(runner)
    if not _context_sums_are_kernels(runner.target):
        return False
    starts = (_START, 4 * runner.target.config.index_topk - 4)  # the indexer begins to choose
    _warm_up(runner, starts)
    runner.is_row_exact = True  # with the kernels that are left now
    is_exact = all(is_row_exact(runner, start) for start in starts)
    return is_exact and runner.is_row_exact and _context_sums_are_kernels(runner.target)


def _warm_up(runner: Runner, starts: tuple[int, ...]) -> None:
    """Launch every kernel once: what cannot be built here is given up now and not later."""
    for start in starts:
        runner.is_row_exact = True
        _, timeline = _run(runner, [0] * MAX_ROWS, (MAX_ROWS,), start)
        if runner.drafter is not None:
            runner.propose(timeline, 0)


def is_row_exact(runner: Runner, start: int = _START) -> bool:
    """Whether passes of 2 to 8 rows are exact behind `start` tokens, as far as they show."""
    vocab = runner.target.config.n_vocab
    tokens = [int(t) for t in np.random.default_rng(4).integers(0, vocab, _N_TOKENS)]
    alone = _run(runner, tokens, (1,) * _N_TOKENS, start)
    splits = ((MAX_ROWS, _N_TOKENS - MAX_ROWS), (2, 3, 5, 2), (6, 6))
    return all(_are_equal(alone, _run(runner, tokens, s, start)) for s in splits)


def _context_sums_are_kernels(target: Target) -> bool:
    config = target.config
    has_indexer = 4 in config.compress_ratios
    return order_is_fixed(
        config.block.head_dim, config.index_dim if has_indexer else None, target.dtype
    )


def _run(
    runner: Runner, tokens: list[int], split: tuple[int, ...], start: int
) -> tuple[np.ndarray, Timeline]:
    timeline, rows = runner.new_timeline(), []
    timeline.log.reserve(start)
    timeline.log.n = start
    _fill(timeline)
    for size in split:
        n = timeline.log.n
        at = n - start
        rows.append(runner.evaluate_rows(timeline, tokens[at : at + size]))
        timeline.log.n = n + size
    return np.concatenate(rows), timeline


def _fill(timeline: Timeline) -> None:
    """Put something into every slot: sums of zeros are alike in any order."""
    key = mx.random.key(5)
    for layer in timeline.log.layers:
        for name in ("window", "rows", "raw", "index_rows", "index_raw"):
            array = getattr(layer, name)
            if array is not None:
                key, now = mx.random.split(key)
                noise = mx.random.normal(array.shape, key=now)
                setattr(layer, name, noise.astype(array.dtype))


def _are_equal(one: tuple[np.ndarray, Timeline], two: tuple[np.ndarray, Timeline]) -> bool:
    if not np.array_equal(one[0], two[0], equal_nan=True):
        return False
    states = [t.log.logical_state() for _, t in (one, two)]
    for state, (_, t) in zip(states, (one, two), strict=True):
        if t.rings is not None:
            state.update(t.rings.logical_state(t.log.n))
    return all(
        np.array_equal(a, states[1][name], equal_nan=True) for name, a in states[0].items()
    )
