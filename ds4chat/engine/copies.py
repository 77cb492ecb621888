"""How fast this device copies memory: what every kernel is held against."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

_N_COPIES = 4


def copy_once(n_bytes: int, clock: Callable[[], float]) -> tuple[int, float]:
    """Copy `n_bytes` a few times: (bytes read and written, seconds)."""
    source = mx.zeros((n_bytes // 4,), dtype=mx.float32)
    mx.eval(source)
    start = clock()
    mx.eval([source + float(i) for i in range(_N_COPIES)])  # sync: the end of a timed run
    return 2 * _N_COPIES * source.nbytes, clock() - start
