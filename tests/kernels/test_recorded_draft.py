"""Recorded drafts are those through MLX, whatever comes between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.engine.recorded_draft import RecordedDrafts
from ds4chat.engine.recording import USES_BEFORE
from ds4chat.engine.runner import Proposal, Runner, Timeline
from ds4chat.ops import dispatch
from ds4chat.ops.blocks import Blocks
from tests.kernels import host_build
from tests.kernels.host_device import HostDevice
from tests.kernels.host_dispatch import HostDispatcher
from tests.kernels.test_passes import PAIR, opened
from tests.kernels.test_recorded import at, recorded, restored, steps, tokens
from tests.make_pair import make_pair

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
START = 150
State = dict[str, Any]
Facts = tuple[tuple[int, ...], tuple[float, ...]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    paths = make_pair(tmp_path_factory.mktemp("pair"), seed=8, quant="q8_0", **PAIR)
    before = dispatch.current()
    dispatch.use(HostDispatcher())
    yield opened(paths, mx.bfloat16)
    dispatch.use(before)


@pytest.fixture(scope="module")
def state(plain: Runner) -> State:
    """At `START` tokens."""
    return at(plain, START)


class CountingDevice(HostDevice):
    """Counts how often it is asked where arrays lie."""

    asked = 0

    def addresses(self, arrays: Sequence[mx.array]) -> list[int]:
        self.asked += 1
        return super().addresses(arrays)


def facts(made: Proposal) -> Facts:
    return made.tokens, made.confidences


def rounds(runner: Runner, timeline: Timeline, sizes: Sequence[int]) -> list[Facts]:
    """A draft before each pass of so many rows, of which all but one are kept."""
    ids, found = tokens(sum(sizes) + 1), []
    for size in sizes:
        done = timeline.log.n
        found.append(facts(runner.propose(timeline, ids[0])))
        runner.evaluate_rows(timeline, ids[:size])
        n_kept = max(1, size - 1)
        timeline.log.n, ids = done + n_kept, ids[n_kept:]
    return found


def drafts_of(runner: Runner) -> RecordedDrafts:
    assert runner.recorded_drafts is not None
    return runner.recorded_drafts


def begun(plain: Runner, state: State, device: HostDevice) -> tuple[Runner, Timeline, Timeline]:
    """A runner with a recorded draft, a timeline of it, and the same one without."""
    runner = recorded(plain, device)
    timeline = restored(runner, START, state)
    for _ in range(USES_BEFORE + 1):
        runner.propose(timeline, 5)
    assert drafts_of(runner).n_recorded == 1
    return runner, timeline, restored(plain, START, state)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_recorded_drafts_have_the_bits_of_drafts_through_mlx(
    plain: Runner, state: State, seed: int
) -> None:
    device = HostDevice(seed)
    sizes = [1, 3, 1, 3, 1, 3, 4, 1, 3, 1, 2, 3]  # 4 and 2 go through MLX
    ours, theirs = restored(plain, START, state), restored(plain, START, state)
    runner = recorded(plain, device)
    assert rounds(runner, ours, sizes) == rounds(plain, theirs, sizes)
    assert drafts_of(runner).n_recorded == 1
    assert runner.recorded is not None and runner.recorded.n_recorded == 2
    assert ours.rings is not None and theirs.rings is not None
    found = ours.rings.logical_state(ours.log.n)
    for name, part in theirs.rings.logical_state(theirs.log.n).items():
        np.testing.assert_array_equal(found[name], part, err_msg=name)


def test_drafts_find_the_rows_of_recorded_passes_where_they_were(
    plain: Runner, state: State
) -> None:
    device = CountingDevice()
    runner, timeline, _ = begun(plain, state, device)
    rounds(runner, timeline, [1] * USES_BEFORE)
    assert timeline.rings is not None
    rings = timeline.rings.arrays()
    rounds(runner, timeline, [1])  # the pass is recorded now
    runner.propose(timeline, 5)
    asked, moved = device.asked, sum(g.moved for g in device.graphs)
    found = {f[0] for f in rounds(runner, timeline, [1] * 4)}
    assert len(found) > 1
    assert all(a is b for a, b in zip(rings, timeline.rings.arrays(), strict=True))
    assert (device.asked, sum(g.moved for g in device.graphs)) == (asked, moved)
    timeline.rings.logical_state(timeline.log.n)  # the host reads: arrays may move
    runner.propose(timeline, 5)
    assert device.asked == asked + 1


def test_a_draft_follows_its_timeline(plain: Runner, state: State) -> None:
    device = HostDevice()
    runner, timeline, other = begun(plain, state, device)
    wanted = facts(plain.propose(other, 9))
    assert facts(runner.propose(timeline, 9)) == wanted
    for r, t in ((runner, timeline), (plain, other)):
        for _ in r.prefill(t, tokens(40, seed=4)):  # through MLX
            pass
    launched = device.launched
    longer = facts(runner.propose(timeline, 9))
    assert longer == facts(plain.propose(other, 9)) != wanted
    second = restored(runner, START, state)
    assert facts(runner.propose(second, 9)) == wanted
    assert facts(runner.propose(timeline, 9)) == longer
    timeline.restore(START, second.logical_state())
    host = dispatch.current()
    assert isinstance(host, HostDispatcher)
    kernels = dict(host.launched)
    assert facts(runner.propose(timeline, 9)) == wanted
    assert host.launched == kernels  # nothing has gone through MLX
    assert device.launched == launched + 4
    assert device.graphs[-1].moved >= 3


@pytest.mark.parametrize("has_drafter", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_arrays_that_mlx_writes_to_are_looked_for_again(
    plain: Runner, state: State, has_drafter: bool
) -> None:
    device = HostDevice()
    runner, timeline, other = begun(plain, state, device)
    pairs = [(runner, timeline), (plain, other)]
    if not has_drafter:
        timeline.rings = other.rings = None
        pairs = [(r.without_drafter(), t) for r, t in pairs]
    for r, t in pairs:
        steps(r, t, [1] * (USES_BEFORE + 1))
    if has_drafter:
        runner.propose(timeline, 9)
    kept = [a + 0 for a in timeline.arrays()]  # not evaluated: these stay as they are
    for r, t in pairs:
        for _ in r.prefill(t, tokens(40, seed=4)):
            pass
    if has_drafter:
        assert facts(runner.propose(timeline, 9)) == facts(plain.propose(other, 9))
    launched, made = device.launched, [steps(r, t, [1, 1])[0] for r, t in pairs]
    assert device.launched == launched + 2
    np.testing.assert_array_equal(made[0], made[1])
    wanted = other.logical_state()
    for name, part in timeline.logical_state().items():
        np.testing.assert_array_equal(part, wanted[name], err_msg=name)
    assert len(kept) == len(timeline.arrays())


def test_what_no_row_sees_does_not_matter(plain: Runner, state: State) -> None:
    runner, timeline, _ = begun(plain, state, HostDevice())
    wanted = facts(runner.propose(timeline, 9))
    assert timeline.rings is not None
    ring = np.array(timeline.rings.rings[0].astype(mx.float32))
    assert np.isnan(ring).any()  # `restored` has poisoned what is not state
    timeline.rings.rings = [mx.where(mx.isnan(r), 7, r) for r in timeline.rings.rings]
    assert facts(runner.propose(timeline, 9)) == wanted


def test_nan_in_the_context_is_told(plain: Runner, state: State) -> None:
    runner, timeline, other = begun(plain, state, HostDevice())
    for one in (timeline, other):
        assert one.rings is not None
        slots = mx.arange(one.rings.rings[0].shape[0])[:, None]
        is_last = slots == (START - 1) % slots.size
        one.rings.rings = [mx.where(is_last, mx.nan, r) for r in one.rings.rings]
    for made in (runner.propose(timeline, 9), plain.propose(other, 9)):
        assert np.isnan(made.confidences).all()
        assert all(0 <= t < 512 for t in made.tokens)


def test_a_draft_chosen_among_nan_is_told(plain: Runner, state: State) -> None:
    assert plain.drafter is not None
    weights, w = plain.drafter.weights, plain.drafter.weights.markov_out
    assert isinstance(w, Blocks) and w.quant.name == "F16"
    values = np.array(w.raw).view(np.float16)
    values[7] = np.nan  # one logit of all rows, and nothing else
    spoilt = Blocks(raw=mx.array(values.view(np.uint8)), quant=w.quant)
    plain.drafter.weights = replace(weights, markov_out=spoilt)
    runner, timeline, other = begun(plain, state, HostDevice())
    for made in (runner.propose(timeline, 9), plain.propose(other, 9)):
        assert np.isnan(made.confidences).all()
        assert 7 not in made.tokens and len(set(made.tokens)) > 1
    plain.drafter.weights = weights


@pytest.mark.slow
def test_timelines_without_a_drafter_have_graphs_of_their_own(
    plain: Runner, state: State
) -> None:
    runner, timeline, other = begun(plain, state, HostDevice())
    alone = runner.without_drafter()
    lone = alone.new_timeline()
    lone.restore(START, timeline.logical_state())
    for token, (r, t) in itertools.product(
        tokens(USES_BEFORE + 2), ((runner, timeline), (alone, lone), (plain, other))
    ):
        r.evaluate_rows(t, [token])
        t.log.n += 1
    assert runner.recorded is not None and runner.recorded.n_recorded == 2
    wanted = other.logical_state()
    for t in (timeline, lone):
        for name, part in t.logical_state().items():
            np.testing.assert_array_equal(part, wanted[name], err_msg=name)


@pytest.mark.parametrize(
    "edge",
    [
        ("markov_pick", "markov_memory"),
        pytest.param(("markov_pick", "markov_tell"), marks=pytest.mark.slow),
    ],
)
def test_a_graph_that_gives_other_bits_is_not_used(
    plain: Runner, state: State, edge: tuple[str, str]
) -> None:
    runner = recorded(plain, HostDevice(forgotten=frozenset({edge})))
    timeline, other = (restored(plain, START, state) for _ in range(2))
    for token in tokens(USES_BEFORE + 2):
        assert facts(runner.propose(timeline, token)) == facts(plain.propose(other, token))
    assert drafts_of(runner).n_recorded == 0
