"""Speculative text and state equal plain ones when passes and drafts are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.engine.costs import CostModel
from ds4chat.engine.runner import Runner
from ds4chat.engine.scheduler import make_scheduler
from ds4chat.engine.session import Session
from ds4chat.ops import dispatch
from ds4chat.protocol.types import Policy, Sampling, SpecOptions
from tests.kernels import host_build
from tests.kernels.host_device import HostDevice
from tests.kernels.host_dispatch import HostDispatcher
from tests.kernels.test_passes import PAIR, opened
from tests.kernels.test_recorded import recorded, tokens
from tests.make_pair import make_pair

pytestmark = pytest.mark.skipif(
    host_build.find_compiler() is None, reason="there is no C++ compiler to build kernels with"
)
START, N_TOKENS, BLOCK = 130, 28, 2


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    paths = make_pair(tmp_path_factory.mktemp("pair"), seed=8, quant="q8_0", **PAIR)
    before = dispatch.current()
    dispatch.use(HostDispatcher())
    yield opened(paths, mx.bfloat16)
    dispatch.use(before)


def begun(runner: Runner, temperature: float) -> Session:
    make = partial(make_scheduler, block_size=BLOCK, costs=CostModel(), window_knobs=None)
    session = Session(
        runner,
        ctx=512,
        end_ids=frozenset(),
        sampling=Sampling(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0, seed=5),
        spec=SpecOptions(policy=Policy.FIXED),
        make_scheduler=make,
        check_thread=lambda: None,
    )
    session.sync(tokens(START, seed=4))
    return session


@pytest.mark.parametrize("temperature", [0.0, pytest.param(0.8, marks=pytest.mark.slow)])
def test_speculative_text_and_state_are_those_of_plain_steps(
    runner: Runner, temperature: float
) -> None:
    """Rounds that keep 0, 1, .. all drafts in turn, then the drafter's own, all recorded."""
    plain = begun(runner, temperature)
    for _ in range(N_TOKENS):
        plain.step(plain.choose())
    truth = list(plain.ids[START:])

    quick = begun(recorded(runner, HostDevice(seed=3)), temperature)
    n_vocab, kept = runner.target.config.n_vocab, []
    for n_right in (2, 0, 1, 2, 0, 1, 2, None, None, None, None):
        at = quick.n - START
        proposal = None
        if n_right is not None:
            wrong = [(token + 1) % n_vocab for token in truth[at + 1 : at + 1 + BLOCK]]
            proposal = truth[at + 1 : at + 1 + n_right] + wrong[n_right:]
        quick.speculate(quick.choose(), 8, proposal=proposal)
        kept.append(quick.n - START - at)
    assert {1, 2, 3} <= set(kept)
    while quick.n < plain.n:
        quick.step(quick.choose())
    assert list(quick.ids[START:]) == truth
    passes, drafts = quick._runner.recorded, quick._runner.recorded_drafts
    assert passes is not None and drafts is not None
    assert (passes.n_recorded, drafts.n_recorded) == (2, 1)  # of three rows, and of one
    wanted, found = plain.timeline.logical_state(), quick.timeline.logical_state()
    assert wanted.keys() == found.keys()
    for name, part in wanted.items():
        np.testing.assert_array_equal(found[name], part, err_msg=name)
