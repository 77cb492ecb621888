"""Trees of NumPy arrays on the device, one by one or in one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.formats.quants.base import format_named
from ds4chat.ops import dispatch
from ds4chat.ops.blocks import Blocks
from ds4chat.ops.dispatch import Dispatcher
from ds4chat.ops.packed import on_device
from ds4chat.ops.replay import Replay, emptied, filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    numbers: Any
    maybe: Any
    name: str
    parts: tuple[Any, ...]
    by_key: dict[int, Any]


def tree(scale: int) -> Tree:
    floats = np.arange(6, dtype=np.float32).reshape(2, 3) / 7 * scale
    floats[0, 1] = -np.inf
    return Tree(
        numbers=np.arange(5, dtype=np.int32) * scale,
        maybe=None,
        name="n",
        parts=(floats, np.array([True, False, scale > 1])),
        by_key={4: np.zeros((1, 0), np.float32), 128: np.broadcast_to(floats[:1], (2, 3))},
    )


@pytest.fixture(params=[False, True])
def dispatcher(request: pytest.FixtureRequest) -> Iterator[Dispatcher]:
    before = dispatch.current()
    dispatch.use(Dispatcher(backend="reference", is_replayed=request.param))
    yield dispatch.current()
    dispatch.use(before)


def test_arrays_arrive_as_they_were(dispatcher: Dispatcher) -> None:
    replay = Replay()
    for scale in (1, 3):
        given, made = tree(scale), on_device(tree(scale), replay)
        assert (made.name, made.maybe) == ("n", None)
        pairs = [
            (given.numbers, made.numbers),
            *zip(given.parts, made.parts, strict=True),
            *((given.by_key[key], made.by_key[key]) for key in (4, 128)),
        ]
        for wanted, found in pairs:
            assert isinstance(found, mx.array)
            assert np.array(found).dtype == wanted.dtype
            np.testing.assert_array_equal(np.array(found), wanted)
    assert replay.n_traces == int(dispatcher.is_replayed)


def test_what_is_on_the_device_stays_there(dispatcher: Dispatcher) -> None:
    there = mx.arange(3)
    made: Any = on_device((there, np.ones(2, np.float32)), Replay())
    assert made[0] is there
    np.testing.assert_array_equal(np.array(made[1]), 1.0)


def test_what_holds_no_array_stays_itself() -> None:
    quant = format_named("Q8_0")
    blocks = Blocks(raw=mx.zeros((2, 34), dtype=mx.uint8), quant=quant)
    found: list[Any] = []
    made = filled(emptied((blocks,), found), iter(found))[0]
    assert made.quant is quant
    assert made.raw is blocks.raw
