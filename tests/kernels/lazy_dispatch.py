"""Launches as nodes of MLX's graph that compute nothing, to time Python alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx

from ds4chat.ops.dispatch import Dispatcher, Output
from ds4chat.ops.spec import KernelSpec


@cache
def _nothing(shape: tuple[int, ...], dtype: Any) -> mx.array:
    made = mx.zeros(shape, dtype=dtype)
    mx.eval(made)
    return made


class LazyDispatcher(Dispatcher):
    """Answers as CUDA would: each launch is one node with the inputs and outputs of the kernel.

    Graphs are replayed as on a GPU; what they compute is zeros.
    """

    def __init__(self, *, is_replayed: bool = True) -> None:
        super().__init__(backend="cuda", is_replayed=is_replayed)

    def run(
        self,
        spec: KernelSpec,
        inputs: Sequence[mx.array],
        n_blocks: int,
        outputs: Sequence[Output],
    ) -> list[mx.array] | None:
        del spec, n_blocks
        nothing = [_nothing(o.shape, o.dtype) for o in outputs]
        made: list[mx.array] = mx.depends(nothing, list(inputs))
        return made
