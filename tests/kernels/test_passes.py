"""Passes of several rows on the kernels: every row has the bits of a pass of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine.backend import choose_backend
from ds4chat.engine.graph_count import count
from ds4chat.engine.load import load
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.model.source import Storage
from ds4chat.ops import dispatch
from tests.engines import SMALL
from tests.kernels import host_build
from tests.kernels.blocks import nmse
from tests.kernels.cases import from_bf16
from tests.kernels.host_dispatch import HostDispatcher
from tests.kernels.lazy_dispatch import LazyDispatcher
from tests.make_pair import PairPaths, make_pair

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
START = 122  # a row of ratio 128 and rows of ratio 4 are completed soon after
N_TOKENS = 7
PAIR = {
    **SMALL,
    "sinkhorn_rounds": 20,
    "ratios": (4, 128),
    "n_hash": 1,
    "n_stages": 1,
    "target_layers": (0, 1),
    "heads": 8,
}
KERNELS = {
    "moe_shared_q8_0",
    *("hyper_post_24", "hyper_pre_24", "hyper_post_4", "hyper_pre_4"),
    *("qmatmul_q8_0", "qmatmul_f16", "moe_gate_up_q8_0", "moe_down_q8_0"),
    *("attn_rows", "index_query", "index_scores", "complete", "complete_both"),
    *("route", "route_table"),
    *("keep_1", "keep_2", "keep_rows_0", "choose"),
    *("embed", "capture", "norm_rows"),
}
DRAFT_KERNELS = {"markov_memory", "markov_pick", "markov_tell"}


def opened(paths: PairPaths, dtype: mx.Dtype) -> Runner:
    """The pair as a GPU would hold it."""
    storage = Storage(dtype=dtype, keeps_blocks=True)
    kernels = dispatch.current()
    backend = replace(choose_backend("cpu"), storage=storage)
    dispatch.use(kernels)
    loaded = load(
        paths.base, paths.support, backend=backend, kv_fp8=True, on_loading=lambda *_: None
    )
    return Runner(loaded.target, loaded.drafter, is_row_exact=True)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=8, quant="q8_0", **PAIR)


@pytest.fixture
def host() -> Iterator[HostDispatcher]:
    before, made = dispatch.current(), HostDispatcher()
    dispatch.use(made)
    yield made
    dispatch.use(before)


def begun(runner: Runner) -> Timeline:
    """A timeline behind a prompt, NaN in every slot that is no state."""
    ids = [int(i) for i in np.random.default_rng(1).integers(2, 500, START)]
    timeline = runner.new_timeline()
    for _ in runner.prefill(timeline, ids):
        pass
    timeline.poison()
    return timeline


def passes(
    runner: Runner, state: dict[str, Any], splits: tuple[int, ...]
) -> tuple[NDArray[np.float32], dict[str, NDArray[Any]]]:
    """Logits and state after the same tokens in passes of given sizes."""
    timeline, rows = runner.new_timeline(), []
    timeline.restore(START, state)
    timeline.poison()
    ids = [int(i) for i in np.random.default_rng(2).integers(2, 500, N_TOKENS)]
    for size in splits:
        at = timeline.log.n
        rows.append(runner.evaluate_rows(timeline, ids[at - START : at - START + size]))
        timeline.log.n = at + size
    return np.concatenate(rows), timeline.logical_state()


@pytest.mark.parametrize(
    "dtype", [pytest.param(mx.float32, marks=pytest.mark.slow), mx.bfloat16]
)
def test_rows_of_a_pass_are_those_of_single_steps(
    host: HostDispatcher, paths: PairPaths, dtype: mx.Dtype
) -> None:
    runner = opened(paths, dtype)
    state = begun(runner).logical_state()
    logits, end = passes(runner, state, (1,) * N_TOKENS)
    assert np.isfinite(logits).all()
    for splits in ((2, 5), (3, 4), (1, 6)):
        found, after = passes(runner, state, splits)
        np.testing.assert_array_equal(found, logits)
        for name, wanted in end.items():
            np.testing.assert_array_equal(after[name], wanted, err_msg=name)
    attention = {"attn_tiles", "attn_join"} if dtype == mx.bfloat16 else {"attn_decode"}
    assert set(host.launched) >= KERNELS | attention


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("n_rows", [1, 6])
def test_a_decode_pass_is_made_of_kernels_alone(paths: PairPaths, n_rows: int) -> None:
    dispatch.use(LazyDispatcher(is_replayed=False))
    runner = opened(paths, mx.bfloat16)
    for start in (START, 4, START):  # weights are laid out by the first pass
        timeline = runner.new_timeline()
        log, rings = timeline.log, timeline.rings
        mx.eval(timeline.arrays())
        plan = runner.target.plan(log, [5] * n_rows, start, row_exact=True)
        result = runner.target.evaluate(log, plan)
        assert result.capture is not None and rings is not None and runner.drafter is not None
        runner.drafter.append(rings, result.capture, plan)
        outputs = [result.logits, *timeline.arrays()]
        counted = count(outputs)
        mx.eval(outputs)
    assert counted.kinds["Depends"] > 30  # a kernel is a node of this kind here
    assert counted.launches == 0, counted.kinds


@pytest.mark.usefixtures("host")
def test_a_draft_is_made_of_kernels_alone(paths: PairPaths) -> None:
    dispatch.use(LazyDispatcher(is_replayed=False))
    runner = opened(paths, mx.bfloat16)
    for _ in range(2):  # weights are laid out by the first draft
        rings = runner.new_timeline().rings
        assert rings is not None and runner.drafter is not None
        mx.eval(rings.arrays())
        told = runner.drafter.propose(rings, 5, START).told
        counted = count([told])
        mx.eval(told)
    n_kernels = 2 + 16 * PAIR["n_stages"] + 3 + 3 * 5 + 1  # streams, stages, head, chain, told
    assert counted.kinds["Depends"] == n_kernels
    assert counted.launches == 0, counted.kinds


@pytest.mark.parametrize(
    ("dtype", "bound"),
    [(mx.bfloat16, 1e-3), pytest.param(mx.float32, 1e-8, marks=pytest.mark.slow)],
)
def test_passes_and_drafts_are_those_of_stock_operations(
    host: HostDispatcher, paths: PairPaths, dtype: mx.Dtype, bound: float
) -> None:
    runner = opened(paths, dtype)
    timeline = begun(runner)
    state = timeline.logical_state()
    found, after = passes(runner, state, (1, 6))
    assert runner.drafter is not None
    assert timeline.rings is not None
    made = runner.drafter.propose(timeline.rings, 5, START)
    ours, told = np.array(made.logits), np.array(made.told)
    assert set(host.launched) >= DRAFT_KERNELS
    dispatch.use(dispatch.Dispatcher(backend="reference"))
    wanted, end = passes(runner, state, (1, 6))
    made = runner.drafter.propose(timeline.rings, 5, START)
    theirs = np.array(made.logits)
    np.testing.assert_array_equal(told[0], ours.argmax(axis=1))
    np.testing.assert_array_equal(told[2], ours.max(axis=1))
    wide = np.array(made.told).astype(np.float64)
    np.testing.assert_array_equal(told[0], wide[0])
    assert nmse(told[1:], wide[1:]) < bound
    assert nmse(found, wanted.astype(np.float64)) < bound
    assert nmse(ours, theirs.astype(np.float64)) < bound
    for name, part in end.items():  # now and then a value rounds to another code
        assert nmse(values(after[name]), values(part).astype(np.float64)) < 1e-3, name


def values(part: NDArray[Any]) -> NDArray[np.float32]:
    """A part of a state as float32; bf16 comes as its bits."""
    return from_bf16(part) if part.dtype == np.uint16 else part
