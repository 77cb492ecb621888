"""Small arrays that a pass needs, brought to the device together.

What NumPy made lies in memory that a GPU fetches at first use, a page at a time: twenty small
arrays are twenty such stops, one buffer is one.
"""

from __future__ import annotations

from typing import Any, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.dispatch import current
from ds4chat.ops.replay import Arrays, Replay, Run, emptied, filled

T = TypeVar("T")
_ALIGNED = 4  # words of four bytes: kernels read 16 bytes at once


def on_device(tree: T, replay: Replay) -> T:
    """`tree` with MLX arrays in the place of NumPy's.

    Args:
        tree: of dataclasses, tuples and dicts; NumPy arrays are int32, float32 or bool.
        replay: replays how the parts of one buffer are told apart, where that is in use.
    """
    found: list[Any] = []
    form = emptied(tree, found)
    if not current().is_replayed or not all(isinstance(a, np.ndarray) for a in found):
        made = [mx.array(a) if isinstance(a, np.ndarray) else a for a in found]
    else:
        layout = tuple((a.shape, a.dtype.char) for a in found)
        made = replay(("packed", layout), lambda: _parts(layout), [], [mx.array(_join(found))])
    filled_tree: T = filled(form, iter(made))
    return filled_tree


def _words(n: int) -> int:
    return -(-n // _ALIGNED) * _ALIGNED


def _join(arrays: list[NDArray[Any]]) -> NDArray[np.int32]:
    joined = np.zeros(sum(_words(a.size) for a in arrays), np.int32)
    at = 0
    for a in arrays:
        wide = a.astype(np.int32) if a.dtype == np.bool_ else np.ascontiguousarray(a)
        joined[at : at + a.size] = wide.reshape(-1).view(np.int32)
        at += _words(a.size)
    return joined


def _parts(layout: tuple[tuple[tuple[int, ...], str], ...]) -> Run:
    def run(arrays: Arrays) -> Arrays:
        parts, at = [], 0
        for shape, kind in layout:
            n = int(np.prod(shape))
            part = arrays[0][at : at + n]
            at += _words(n)
            if kind == "f":
                part = part.view(mx.float32)
            elif kind == "?":
                part = part != 0
            parts.append(part.reshape(shape))
        return parts

    return run
