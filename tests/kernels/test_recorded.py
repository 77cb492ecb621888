"""Recorded passes give the bits of passes through MLX, whatever comes between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.engine.recorded import RecordedPasses
from ds4chat.engine.recorded_draft import RecordedDrafts
from ds4chat.engine.recording import MAX_FORMS, USES_BEFORE, Form, Traced
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.errors import KernelError
from ds4chat.ops import dispatch
from ds4chat.ops.step_graph import UnrecordableError
from tests.kernels import host_build
from tests.kernels.host_device import HostDevice
from tests.kernels.host_dispatch import HostDispatcher
from tests.kernels.test_passes import PAIR, opened
from tests.make_pair import PairPaths, make_pair

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
START = 129  # the first rows of all ratios are there; a recorded pass completes others
ALL = 6

Found = tuple[NDArray[np.float32], dict[str, NDArray[Any]]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=8, quant="q8_0", **PAIR)


@pytest.fixture
def host() -> Iterator[HostDispatcher]:
    before, made = dispatch.current(), HostDispatcher()
    dispatch.use(made)
    yield made
    dispatch.use(before)


@pytest.fixture
def through_mlx(host: HostDispatcher, paths: PairPaths) -> Runner:
    assert host.backend == "host"
    return opened(paths, mx.bfloat16)


def recorded(runner: Runner, device: HostDevice) -> Runner:
    """The same models, their passes and drafts recorded after a few uses."""
    assert runner.drafter is not None
    passes = RecordedPasses(runner.target, runner.drafter, device, rare_uses=USES_BEFORE)
    return Runner(
        runner.target,
        runner.drafter,
        is_row_exact=True,
        recorded=passes,
        recorded_drafts=RecordedDrafts(runner.drafter, device),
    )


def recording(runner: Runner, device: HostDevice) -> tuple[Runner, RecordedPasses]:
    made = recorded(runner, device)
    assert made.recorded is not None
    return made, made.recorded


def tokens(n: int, seed: int = 2) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(2, 500, n)]


def restored(runner: Runner, n: int, state: dict[str, Any]) -> Timeline:
    """A timeline that holds a state, NaN in every slot that is none."""
    timeline = runner.new_timeline()
    timeline.restore(n, state)
    timeline.poison()
    return timeline


_STATES: dict[int, dict[str, Any]] = {}


def at(runner: Runner, n: int) -> dict[str, Any]:
    """The state behind a prompt of `n` tokens; all pairs of these tests are alike."""
    if n not in _STATES:
        timeline = runner.new_timeline()
        for _ in runner.prefill(timeline, tokens(n, seed=1)):
            pass
        _STATES[n] = timeline.logical_state()
    return _STATES[n]


def begun(runner: Runner, n: int = START) -> Timeline:
    return restored(runner, n, at(runner, n))


def steps(runner: Runner, timeline: Timeline, sizes: Sequence[int], seed: int = 2) -> Found:
    """Logits of passes of given sizes, all rows kept, and the state behind them."""
    found: list[NDArray[np.float32]] = []
    ids = tokens(sum(sizes), seed)
    for size in sizes:
        found.append(runner.evaluate_rows(timeline, ids[:size]))
        timeline.log.n += size
        ids = ids[size:]
    return np.concatenate(found), timeline.logical_state()


def assert_same(ours: Found, wanted: Found) -> None:
    np.testing.assert_array_equal(ours[0], wanted[0])
    assert ours[1].keys() == wanted[1].keys()
    for name, part in wanted[1].items():
        np.testing.assert_array_equal(ours[1][name], part, err_msg=name)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_passes_of_all_sizes_have_the_bits_of_steps_through_mlx(
    through_mlx: Runner, seed: int
) -> None:
    sizes = [1] * (USES_BEFORE + 2) + [3, 2] * (USES_BEFORE + 2)
    wanted = steps(through_mlx, begun(through_mlx), [1] * sum(sizes))
    device = HostDevice(seed)
    runner, passes = recording(through_mlx, device)
    assert_same(steps(runner, begun(runner), sizes), wanted)
    assert passes.n_recorded == 3
    assert device.launched >= 3 * 3  # a check and two uses of each


def test_rows_that_are_not_committed_leave_nothing(through_mlx: Runner) -> None:
    runner, passes = recording(through_mlx, HostDevice())
    ours, wanted = begun(runner), begun(through_mlx)
    for n_kept in [1, 3, 0, 2, 1, 3, 1, 2]:
        for run, timeline in ((runner, ours), (through_mlx, wanted)):
            run.evaluate_rows(timeline, tokens(4, seed=n_kept))
            timeline.log.n += n_kept
        ours.poison()  # nothing but the state counts; the arrays are others from here on
        wanted.poison()
    assert passes.n_recorded == 1
    ids = [1] * 3
    assert_same(steps(runner, ours, ids), steps(through_mlx, wanted, ids))


def test_a_graph_follows_the_state_to_other_arrays(through_mlx: Runner) -> None:
    """Another timeline, a restored one, a prompt in between, and a host that reads arrays."""
    device = HostDevice()
    runner, passes = recording(through_mlx, device)
    first, second = begun(runner), begun(runner, START + 3)
    steps(runner, first, [1] * (USES_BEFORE + 2))
    assert passes.n_recorded == 1
    wanted = begun(through_mlx, START + 3)
    assert_same(steps(runner, second, [1] * 3), steps(through_mlx, wanted, [1] * 3))
    assert any(graph.moved for graph in device.graphs)
    for timeline, run in ((second, runner), (wanted, through_mlx)):
        for _ in run.prefill(timeline, tokens(9, seed=5)):
            pass
        timeline.log.logical_state()
    assert_same(steps(runner, second, [1] * 3), steps(through_mlx, wanted, [1] * 3))
    again = runner.new_timeline()
    again.restore(second.log.n, second.logical_state())
    assert_same(steps(runner, again, [1] * 2), steps(through_mlx, wanted, [1] * 2))
    assert passes.n_recorded == 1


def test_a_state_that_was_taken_does_not_change(through_mlx: Runner) -> None:
    runner, passes = recording(through_mlx, HostDevice())
    timeline = begun(runner)
    steps(runner, timeline, [1] * (USES_BEFORE + 1))
    lazy = timeline.lazy_state()
    mx.eval(lazy)
    before = {name: np.array(part.view(mx.uint8)) for name, part in lazy.items()}
    steps(runner, timeline, [1] * 6)
    assert passes.n_recorded == 1
    for name, part in lazy.items():
        np.testing.assert_array_equal(np.array(part.view(mx.uint8)), before[name], err_msg=name)


def test_a_graph_that_gives_other_bits_is_not_used(through_mlx: Runner) -> None:
    """Without edges launches run before what they read is there."""
    device = HostDevice(has_edges=False)
    runner, passes = recording(through_mlx, device)
    sizes = [1] * (USES_BEFORE + 3)
    wanted = steps(through_mlx, begun(through_mlx), sizes)
    assert_same(steps(runner, begun(runner), sizes), wanted)
    assert passes.n_recorded == 0
    assert all(graph.is_closed for graph in device.graphs)


@pytest.mark.parametrize("kernel", ["choose", "keep_2"])
def test_what_is_more_than_launches_goes_through_mlx(
    host: HostDispatcher, through_mlx: Runner, kernel: str
) -> None:
    host.fallbacks[kernel] = "a test gives it up"
    device = HostDevice()
    runner, passes = recording(through_mlx, device)
    sizes = [1] * (USES_BEFORE + 3)
    wanted = steps(through_mlx, begun(through_mlx), sizes)
    assert_same(steps(runner, begun(runner), sizes), wanted)
    assert passes.n_recorded == 0
    assert device.launched == 0


def test_a_device_that_fails_ends_recording_only(through_mlx: Runner) -> None:
    class Failing(HostDevice):
        def graph(self, nodes: Any) -> Any:
            raise KernelError(f"no room for {len(nodes)} nodes", "use MLX")

    runner, passes = recording(through_mlx, Failing())
    sizes = [1] * (USES_BEFORE + 3)
    wanted = steps(through_mlx, begun(through_mlx), sizes)
    assert_same(steps(runner, begun(runner), sizes), wanted)
    assert passes.n_recorded == 0


def test_what_happens_meanwhile_may_fail(through_mlx: Runner) -> None:
    runner, passes = recording(through_mlx, HostDevice())
    timeline = begun(runner)
    steps(runner, timeline, [1] * (USES_BEFORE + 1))
    assert passes.n_recorded == 1

    def fail() -> None:
        raise InterruptedError

    wanted = begun(through_mlx, START)
    steps(through_mlx, wanted, [1] * (USES_BEFORE + 1))
    with pytest.raises(InterruptedError):
        runner.evaluate_rows(timeline, [7], meanwhile=fail)
    assert_same(steps(runner, timeline, [1] * 2), steps(through_mlx, wanted, [1] * 2))


def test_counts_of_uses_do_not_grow_without_end(through_mlx: Runner) -> None:
    runner, passes = recording(through_mlx, HostDevice())
    recorder, timeline = passes._recorder, begun(runner)
    before = timeline.arrays()

    def trace() -> Traced:
        raise UnrecordableError("a test refuses it")

    words = np.zeros(4, np.int32)
    for i in range(3 * MAX_FORMS):
        form = Form(key=i, words=words, trace=trace, uses_before=0)
        assert recorder.run(form, timeline.logs) is None
    assert len(recorder._uses) == MAX_FORMS
    again = Form(key=3 * MAX_FORMS - 1, words=words, trace=trace, uses_before=0)
    for _ in range(3):
        assert recorder.run(again, timeline.logs) is None  # refused once and for all
    assert recorder._uses[again.key] < 0
    assert all(a is b for a, b in zip(before, timeline.arrays(), strict=True))


def test_lanes_in_turn_keep_their_places_until_they_end(through_mlx: Runner) -> None:
    """A lane with rows for a draft and one without have graphs of their own."""

    class Counting(HostDevice):
        asked = 0

        def addresses(self, arrays: Sequence[mx.array]) -> list[int]:
            self.asked += 1
            return super().addresses(arrays)

    device = Counting()
    runner, passes = recording(through_mlx, device)
    bare = runner.without_drafter()
    quick, plain = begun(runner), begun(bare)
    lanes = ((runner, quick), (bare, plain))
    for run, timeline in lanes:
        steps(run, timeline, [1] * (USES_BEFORE + 2))
    assert passes.n_recorded == 2
    asked = device.asked
    for _ in range(3):
        for run, timeline in lanes:
            run.evaluate_rows(timeline, [7])
            timeline.log.n += 1
    assert device.asked == asked
    held = [bool(kept.bound) for kept in passes._recorder._kept.values()]
    assert held == [True, True]
    del plain, lanes, timeline
    for _ in bare.prefill(quick, [5]):  # the other lane's arrays are others
        pass
    runner.evaluate_rows(quick, [7])
    held = [bool(kept.bound) for kept in passes._recorder._kept.values()]
    assert sorted(held) == [False, True]
