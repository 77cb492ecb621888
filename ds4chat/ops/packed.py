"""Small arrays that a pass needs, brought to the device together.

What NumPy made lies in memory that a GPU fetches at first use, a page at a time: twenty small
arrays are twenty such stops, one buffer is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.ops.dispatch import current
from ds4chat.ops.replay import Arrays, Replay, Run, emptied, filled

T = TypeVar("T")
_ALIGNED = 4  # words of four bytes: kernels read 16 bytes at once


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    shape: tuple[int, ...]
    kind: str  # of NumPy: i, f or ?
    at: int  # first word


class KeptBuffer:
    """Parts that stand in one buffer, `words`, which is kept and filled anew for each pass.

    `views` are the parts on the host, bools as int32. Compared by identity.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._n_words = 0
        self.words = np.zeros(0, np.int32)
        self.views: list[NDArray[Any]] = []

    def add(self, shape: tuple[int, ...], kind: str) -> int:
        """A new part's number; `kind` is NumPy's: i, f or ?."""
        self._parts.append(_Part(shape=shape, kind=kind, at=self._n_words))
        self._n_words += _words(int(np.prod(shape)))
        return len(self._parts) - 1

    def close(self) -> None:
        """Make the buffer, all zero: there are all parts."""
        self.words = np.zeros(self._n_words, np.int32)
        self.views = [self._view(part) for part in self._parts]

    def _view(self, part: _Part) -> NDArray[Any]:
        flat = self.words[part.at : part.at + int(np.prod(part.shape))].reshape(part.shape)
        return flat.view(np.float32) if part.kind == "f" else flat

    def arrays(self) -> Arrays:
        """The parts one by one."""
        kinds = [part.kind for part in self._parts]
        return [
            mx.array(view.astype(np.bool_) if kind == "?" else view)
            for view, kind in zip(self.views, kinds, strict=True)
        ]

    def split(self, *, is_moved: bool) -> Run:
        """The function from the buffer to its parts, which are views of it, and the buffer.

        `is_moved`: of a copy of it, so that it no longer lies in the host's memory.
        """

        def run(arrays: Arrays) -> Arrays:
            words = arrays[0] + 0 if is_moved else arrays[0]
            floats, parts = words.view(mx.float32), []
            for part in self._parts:
                strides = np.cumprod((1, *part.shape[:0:-1]))[::-1].tolist()
                source = floats if part.kind == "f" else words
                made = mx.as_strided(source, part.shape, strides, part.at)
                parts.append(made != 0 if part.kind == "?" else made)
            return [*parts, words]

        return run

    def on_device(self, replay: Replay, *, is_moved: bool) -> Arrays:
        """The parts as they are now, and the buffer behind them."""
        if not current().is_replayed:
            return [*self.arrays(), mx.array(0)]
        words = mx.array(self.words)
        return replay((self, is_moved), lambda: self.split(is_moved=is_moved), [], [words])


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
