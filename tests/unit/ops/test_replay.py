"""Traces: made once, after every kernel in them has run; given up where MLX cannot trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.ops import dispatch, replay
from ds4chat.ops.cache_kernels import choose_spec
from ds4chat.ops.cuda_build import Launcher, Unit
from ds4chat.ops.dispatch import Dispatcher, Output
from ds4chat.ops.replay import Replay
from ds4chat.ops.spec import KernelSpec

SPEC = choose_spec(7)


class Twice:
    """Stands for a built kernel: `launched` counts its launches and tracings."""

    def __init__(self) -> None:
        self.launched = 0

    def __call__(self, *, inputs: list[mx.array], **rest: Any) -> list[mx.array]:
        self.launched += 1
        return [inputs[0] @ inputs[1]]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Twice]:
    made, before = Twice(), dispatch.current()
    monkeypatch.setattr(dispatch, "_make", lambda *_: made)
    dispatch.use(Dispatcher(backend="cuda", is_replayed=True))
    yield made
    dispatch.use(before)


def launch(inputs: list[mx.array], spec: KernelSpec = SPEC) -> mx.array:
    made = dispatch.current().run(spec, inputs, 1, [Output(shape=(2, 2), dtype=mx.float32)])
    assert made is not None
    return made[0]


def step(arrays: list[mx.array]) -> list[mx.array]:
    """Writes to its state, as caches are written to."""
    ring, x = arrays
    ring[mx.array([0])] = launch([x, x])[:1]
    return [ring]


def test_a_kernel_runs_before_it_is_traced_and_never_again(kernel: Twice) -> None:
    runs = Replay()
    ring, x = mx.zeros((3, 2)), mx.eye(2) * 2
    for i in range(4):
        (made,) = runs("key", lambda: step, [ring], [x + i])
        wanted = np.zeros((3, 2))
        wanted[0] = (np.array(x + i) @ np.array(x + i))[0]
        np.testing.assert_array_equal(np.array(made), wanted)
        np.testing.assert_array_equal(np.array(ring), 0)  # what was given is as it was
    assert kernel.launched == 2  # once alone, once in the trace
    assert runs.n_traces == 1


def test_without_replaying_everything_is_built_anew(kernel: Twice) -> None:
    dispatch.current().is_replayed = False
    runs = Replay()
    for _ in range(3):
        runs("key", lambda: step, [mx.zeros((3, 2))], [mx.eye(2)])
    assert kernel.launched == 3
    assert runs.n_traces == 0


def test_what_cannot_be_traced_is_run_as_it_is(kernel: Twice) -> None:
    def asks(arrays: list[mx.array]) -> list[mx.array]:
        return [arrays[0] + int(np.array(arrays[0]).sum())]

    runs = Replay()
    (made,) = runs("key", lambda: asks, [], [mx.ones(2)])
    np.testing.assert_array_equal(np.array(made), 3)
    assert not dispatch.current().is_replayed


def test_the_oldest_trace_goes(kernel: Twice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_TRACES", 2)
    made = []

    def make(name: str) -> replay.Run:
        made.append(name)
        return lambda arrays: [arrays[0] @ arrays[0]]

    runs = Replay()
    for name in ("a", "b", "a", "c", "a", "b"):
        runs(name, lambda name=name: make(name), [], [mx.eye(2)])  # type: ignore[misc]
    assert made == ["a", "b", "c", "b"]


def test_a_kernel_that_mlx_cannot_load_is_compiled_by_mlx(
    kernel: Twice, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Launcher(Unit(name="k", text="", shapes=()), b"no code", (2, 2))

    def fail(**rest: Any) -> list[mx.array]:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(mx.fast, "precompiled_cuda_kernel", fail)
    monkeypatch.setattr(dispatch, "_make", lambda *_: broken)
    monkeypatch.setattr(dispatch, "_by_mlx", lambda *_: kernel)
    x = mx.eye(2)
    np.testing.assert_array_equal(np.array(launch([x, x])), np.eye(2))
    launch([x, x])
    assert kernel.launched == 2
    assert not dispatch.current().fallbacks
