"""When a backend that promises no order of sums may verify a block in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine.engine import Engine
from ds4chat.engine.probe import can_verify_in_passes
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.ops import dispatch
from ds4chat.ops.dispatch import Dispatcher, Output
from ds4chat.ops.spec import KernelSpec
from tests.engines import SMALL, open_half
from tests.kernels import host_build
from tests.kernels.host_dispatch import HostDispatcher

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    pair = {
        **SMALL,
        "sinkhorn_rounds": 20,
        "ratios": (4,),
        "n_hash": 0,
        "n_stages": 1,
        "target_layers": (0,),
    }
    engine: Engine = open_half(tmp_path_factory.mktemp("pair"), seed=8, quant="q8_0", **pair)
    yield Runner(engine.runner.target, None, is_row_exact=True)
    engine.close()


@pytest.fixture
def using() -> Iterator[Callable[[Dispatcher], None]]:
    before = dispatch.current()
    yield dispatch.use
    dispatch.use(before)


class _Losing(HostDispatcher):
    """Gives a kernel up when it is wanted first, or a later time."""

    def __init__(self, name: str, after: int = 0) -> None:
        super().__init__()
        self.name, self.after = name, after

    def run(
        self,
        spec: KernelSpec,
        inputs: Sequence[mx.array],
        n_blocks: int,
        outputs: Sequence[Output],
    ) -> list[mx.array] | None:
        if spec.name == self.name and self.launched.get(spec.name, 0) >= self.after:
            self.fallbacks[spec.name] = "for this test"
        return super().run(spec, inputs, n_blocks, outputs)


class _Leaking(HostDispatcher):
    """Attention of several rows differs in a bit."""

    def run(
        self,
        spec: KernelSpec,
        inputs: Sequence[mx.array],
        n_blocks: int,
        outputs: Sequence[Output],
    ) -> list[mx.array] | None:
        made = super().run(spec, inputs, n_blocks, outputs)
        if spec.name == "attn_decode" and made is not None and outputs[0].shape[0] > 1:
            return [made[0] * 1.01]
        return made


def test_with_kernels_that_prove_themselves(
    runner: Runner, using: Callable[[Dispatcher], None]
) -> None:
    host = HostDispatcher()
    using(host)
    assert can_verify_in_passes(runner, is_order_fixed=False)
    assert {"attn_decode", "index_scores"} <= set(host.launched)


def test_not_without_kernels(runner: Runner) -> None:
    assert can_verify_in_passes(runner, is_order_fixed=True)
    assert not can_verify_in_passes(runner, is_order_fixed=False)


@pytest.mark.parametrize(
    ("name", "after", "is_proven"),
    [
        ("index_scores", 0, False),  # a sum over the context
        pytest.param("keep_2", 0, True, marks=pytest.mark.slow),  # stock in its place
        pytest.param("keep_2", 9, False, marks=pytest.mark.slow),  # while it is tried
    ],
)
def test_when_a_kernel_is_given_up(
    name: str,
    after: int,
    is_proven: bool,
    runner: Runner,
    using: Callable[[Dispatcher], None],
) -> None:
    using(_Losing(name, after))
    assert can_verify_in_passes(runner, is_order_fixed=False) == is_proven


def test_a_pass_that_loses_a_kernel_is_done_again_row_by_row(
    runner: Runner, using: Callable[[Dispatcher], None]
) -> None:
    sizes: list[int] = []

    class Watched(Runner):
        def _pass(
            self, timeline: Timeline, ids: Sequence[int], n: int, **options: Any
        ) -> NDArray[np.float32]:
            sizes.append(len(ids))
            return super()._pass(timeline, ids, n, **options)

    using(_Losing("attn_decode", 2))
    watched = Watched(runner.target, None, is_row_exact=True)
    timeline = watched.new_timeline()
    for n in (0, 3, 6):
        watched.evaluate_rows(timeline, [5, 6, 7])
        timeline.log.n = n + 3
    assert sizes == [3, 3, 3, 1, 1, 1]
    watched.evaluate_rows(timeline, [5, 6])
    assert sizes[6:] == [1, 1]


def test_not_when_rows_are_not_exact(
    runner: Runner, using: Callable[[Dispatcher], None]
) -> None:
    using(_Leaking())
    assert not can_verify_in_passes(runner, is_order_fixed=False)


def test_not_for_heads_without_a_kernel(
    runner: Runner, using: Callable[[Dispatcher], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    using(HostDispatcher())
    config = runner.target.config
    wide = replace(config, block=replace(config.block, head_dim=1024))
    monkeypatch.setattr(runner.target, "config", wide)
    assert not can_verify_in_passes(runner, is_order_fixed=False)
