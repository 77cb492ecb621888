"""Pure functions of arrays, traced once for each kind of arguments and replayed by MLX.

Building a layer's graph in Python costs some 10 us for each operation, and as much again for
each kernel, whose text MLX puts together anew at every call. A replay costs about 1 us. The
traced graph holds the same operations; on the CPU nothing is replayed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

from ds4chat.ops import dispatch

MAX_TRACES = 256
"""Traces kept: a few for each number of rows and step of the context's length."""

_log = logging.getLogger("ds4chat.kernels")

Arrays = list[mx.array]
Run = Callable[[Arrays], Arrays]


def emptied(tree: Any, found: list[Any]) -> Hashable:
    """The form of a tree of dataclasses, tuples and dicts: hashable, for `filled`.

    Its arrays, MLX's or NumPy's, are appended to `found` in a fixed order. A form is a triple
    of tuples and types; what holds no array is part of it as it is, so that it stays itself.
    """
    if isinstance(tree, (mx.array, np.ndarray)):
        found.append(tree)
        return (mx.array, tree.shape, tree.dtype)
    kind: Any = type(tree)
    names = _names(kind)
    if names:
        n_before = len(found)
        parts = tuple([emptied(getattr(tree, n), found) for n in names])
        return (kind, names, parts) if len(found) > n_before else (None, kind, tree)
    if isinstance(tree, tuple):
        return (tuple, (), tuple([emptied(part, found) for part in tree]))
    if isinstance(tree, dict):
        return (dict, tuple(tree), tuple([emptied(part, found) for part in tree.values()]))
    return (None, kind, tree)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()


def filled(form: Any, arrays: Iterator[mx.array]) -> Any:
    """The tree of which `form` is the form, with the next arrays of `arrays`."""
    kind, names, parts = form
    if kind is mx.array:
        return next(arrays)
    if kind is None:
        return parts
    made = [filled(part, arrays) for part in parts]
    if kind is tuple:
        return tuple(made)
    if kind is dict:
        return dict(zip(names, made, strict=True))
    return kind(**dict(zip(names, made, strict=True)))


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
        if not trace.is_traced and not _trace(trace, state, fixed):
            return trace.run(state + fixed)
        return trace.call(state + fixed)


def _trace(trace: _Trace, state: Arrays, fixed: Arrays) -> bool:
    """Trace, after kernels that have not run yet have run once.

    Where MLX cannot trace, nothing is replayed from then on, and False is returned.
    """
    dispatcher = dispatch.current()
    while not trace.is_traced:
        try:
            with dispatcher.tracing():
                trace.call(state + fixed)
            trace.is_traced = True
        except dispatch.UnprovenError:
            trace.run([mx.array(a) for a in state] + fixed)
        except (RuntimeError, ValueError) as error:
            dispatcher.is_replayed = False
            _log.warning("graphs are built anew for each pass: %s", error)
            return False
    return True
