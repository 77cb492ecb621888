"""Pure functions of arrays, traced once for each kind of arguments and replayed by MLX.

Building a layer's graph in Python costs some 10 us for each operation, and as much again for
each kernel, whose text MLX puts together anew at every call. A replay costs about 1 us. The
traced graph holds the same operations; on the CPU nothing is replayed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import mlx.core as mx

from ds4chat.ops import dispatch

MAX_TRACES = 512
"""Traces kept: a few for each number of rows and step of the context's length."""

Arrays = list[mx.array]
Run = Callable[[Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Shape:
    """A tree of dataclasses, tuples and dicts without its arrays: what `filled` rebuilds."""

    kind: Any
    names: tuple[Any, ...] = ()
    parts: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where an array stands in a tree: its shape and the name of its type."""

    shape: tuple[int, ...]
    dtype: str


def emptied(tree: Any, found: Arrays) -> Hashable:
    """The form of `tree`, hashable; its arrays are appended to `found` in a fixed order."""
    if isinstance(tree, mx.array):
        found.append(tree)
        return Leaf(tree.shape, str(tree.dtype))
    if is_dataclass(tree) and not isinstance(tree, type):
        names = tuple(f.name for f in fields(tree))
        parts = tuple(emptied(getattr(tree, name), found) for name in names)
        return Shape(type(tree), names, parts)
    if isinstance(tree, tuple):
        return Shape(tuple, (), tuple(emptied(part, found) for part in tree))
    if isinstance(tree, dict):
        parts = tuple(emptied(part, found) for part in tree.values())
        return Shape(dict, tuple(tree), parts)
    return Shape(None, (type(tree),), (tree,))


def filled(form: Any, arrays: Iterator[mx.array]) -> Any:
    """The tree of which `form` is the form, with the next arrays of `arrays`."""
    if isinstance(form, Leaf):
        return next(arrays)
    if form.kind is None:
        return form.parts[0]
    parts = [filled(part, arrays) for part in form.parts]
    if form.kind is tuple:
        return tuple(parts)
    if form.kind is dict:
        return dict(zip(form.names, parts, strict=True))
    return form.kind(**dict(zip(form.names, parts, strict=True)))


@dataclass(slots=True)
class _Trace:
    call: Run
    run: Run
    is_traced: bool = False


class Replay:
    """Traces by key; the least recently used are dropped."""

    def __init__(self) -> None:
        self._traces: OrderedDict[Hashable, _Trace] = OrderedDict()

    @property
    def n_traces(self) -> int:
        """How many are kept."""
        return len(self._traces)

    def __call__(
        self, key: Hashable, make: Callable[[], Run], state: Arrays, fixed: Arrays
    ) -> Arrays:
        """`make()(state + fixed)`, replayed if the dispatcher in use wants that.

        Args:
            key: all that the graph depends on beside the values of the arrays.
            make: makes the function; it must depend on its arguments and `key` alone, and may
                write to the arrays of `state` only.
            state: arrays that the caller replaces by results.
            fixed: all other arrays.
        """
        if not dispatch.current().is_replayed:
            return make()(state + fixed)
        key = (key, len(dispatch.current().fallbacks))
        trace = self._traces.get(key)
        if trace is None:
            run = make()
            trace = self._traces[key] = _Trace(mx.compile(run), run)
            if len(self._traces) > MAX_TRACES:
                self._traces.popitem(last=False)
        else:
            self._traces.move_to_end(key)
        if not trace.is_traced:
            _trace(trace, state, fixed)
        return trace.call(state + fixed)


def _trace(trace: _Trace, state: Arrays, fixed: Arrays) -> None:
    """Trace, after kernels that have not run yet have run once."""
    while not trace.is_traced:
        try:
            with dispatch.current().tracing():
                trace.call(state + fixed)
            trace.is_traced = True
        except dispatch.UnprovenError:
            trace.run([mx.array(a) for a in state] + fixed)
