"""Does a pass of several rows give each row the bits of a pass of its own?

The claim that speculative text equals plain text rests on it, so it is tried on the real model
and device before it is believed: the same tokens go through one by one and in passes of 2 to 8
rows, and logits and state must be equal bit for bit. The tokens stand where the number of
attended slots changes, a row of ratio 128 is completed, and both window borders lie behind.
"""

from __future__ import annotations

import numpy as np

from ds4chat.engine.runner import Runner, Timeline
from ds4chat.model.kv import MAX_ROWS

_N_TOKENS = 12
_START = 250  # 64 rows of ratio 4 are full at 256; what stands before does not matter


def is_row_exact(runner: Runner) -> bool:
    """Whether passes of 2 to 8 rows are exact here. `runner` must run them as passes."""
    vocab = runner.target.config.n_vocab
    tokens = [int(t) for t in np.random.default_rng(4).integers(0, vocab, _N_TOKENS)]
    alone = _run(runner, tokens, (1,) * _N_TOKENS)
    splits = ((MAX_ROWS, _N_TOKENS - MAX_ROWS), (2, 3, 5, 2), (6, 6))
    return all(_are_equal(alone, _run(runner, tokens, s)) for s in splits)


def _run(
    runner: Runner, tokens: list[int], split: tuple[int, ...]
) -> tuple[np.ndarray, Timeline]:
    timeline, rows = runner.new_timeline(), []
    timeline.log.reserve(_START)
    timeline.log.n = _START
    for size in split:
        n = timeline.log.n
        at = n - _START
        rows.append(runner.evaluate_rows(timeline, tokens[at : at + size]))
        timeline.log.n = n + size
    return np.concatenate(rows), timeline


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
