"""Whole replies are plain decoding's under every policy, whatever the clock says.

The turn loop over the real engine; the drafter is replaced by one that knows the plain text and
errs at drawn places, and every duration that a policy could see is drawn too. Policy, limits
and on/off change in mid-reply.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds4chat.engine import runner, session
from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Proposal, Timeline
from ds4chat.engine.session import Session
from ds4chat.engine.turn_plan import TurnControls, TurnPlan, TurnTools
from ds4chat.engine.turns import Turn
from ds4chat.protocol.events import Event, RoundVerified, TurnFinished
from ds4chat.protocol.types import Policy, Sampling, SpecOptions, ThinkMode
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.stops import StopGate
from tests.engines import SMALL, differing, open_pair, random_ids

N_TOKENS = 40
BLOCK = 5


class Clock:
    """A clock whose every step is drawn: fast, slow, or standing still."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._now = 0.0

    def __call__(self) -> float:
        self._now += self._draw.choice((0.0, 0.001, 0.01, 0.1))
        return self._now


class Oracle:
    """A drafter that knows what comes and is wrong at drawn places."""

    def __init__(self, n_prompt: int, text: Sequence[int], seed: int, clock: Clock) -> None:
        self._n_prompt = n_prompt
        self._text = text
        self._seed = seed
        self._clock = clock

    def propose(self, timeline: Timeline, anchor: int) -> Proposal:
        at = timeline.log.n - self._n_prompt + 1
        draw = random.Random(self._seed * 1000 + at)
        right = [*self._text[at : at + BLOCK], *[7] * BLOCK][:BLOCK]
        p_wrong = draw.choice((0.0, 0.2, 0.7))
        tokens = [t if draw.random() >= p_wrong else (t + 1) % 500 for t in right]
        start = self._clock()
        return Proposal(
            tokens=tuple(tokens),
            confidences=tuple(draw.random() for _ in tokens),
            draft_s=self._clock() - start,
        )


def reply(
    engine: Engine, prompt: list[int], sampling: Sampling, spec: SpecOptions, clock: Clock,
    switches: dict[int, SpecOptions] | None = None,
) -> tuple[Session, TurnFinished, list[Event]]:  # fmt: skip
    """One whole turn; `switches` change the options before the step of that number."""
    made, controls = engine.session(), TurnControls()
    events: list[Event] = []
    plan = TurnPlan(
        turn_id=1, lane=0, ids=tuple(prompt), ctx=engine.info.ctx, end_ids=engine.end_ids,
        close_think_id=None, block_size=BLOCK, sampling=sampling, spec=spec,
        max_tokens=N_TOKENS,
    )  # fmt: skip
    tools = TurnTools(
        splitter=ChannelSplitter(engine.tokenizer, ThinkMode.OFF), gate=StopGate(()),
        text_of=engine.tokenizer.piece, emit=events.append, clock=clock,
        plain_step_s=lambda: engine.costs.plain_step_s,
    )  # fmt: skip
    turn = Turn(plan, made, controls, tools)
    step = 0
    while turn.advance():
        if switches is not None and step in switches:
            controls.set_spec(switches[step])
        step += 1
    (end,) = [event for event in events if isinstance(event, TurnFinished)]
    return made, end, events


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=21, **SMALL) as opened:
        yield opened


specs = st.builds(
    SpecOptions,
    enabled=st.sampled_from([True, True, True, False]),
    policy=st.sampled_from(list(Policy)),
    confidence_threshold=st.sampled_from([None, 0.0, 0.3, 0.9]),
    draft_max=st.sampled_from([None, 1, 3]),
)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 1.3]),
    top_k=st.sampled_from([0, 9]),
    top_p=st.sampled_from([1.0, 0.95]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 2**40),
)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_reply_is_the_plain_one_under_any_policy_and_clock(
    engine: Engine, data: st.DataObject
) -> None:
    sampling = data.draw(samplings)
    prompt = random_ids(engine, data.draw(st.integers(1, 140)), seed=4)
    clock = Clock(data.draw(st.integers(0, 10**6)))
    plain_spec = SpecOptions(enabled=False, policy=Policy.FIXED)
    with pytest.MonkeyPatch.context() as patch:
        for module in (session, runner):
            patch.setattr(module, "time", SimpleNamespace(perf_counter=clock))
        plain, plain_end, _ = reply(engine, prompt, sampling, plain_spec, clock)
        oracle = Oracle(len(prompt), plain_end.ids, data.draw(st.integers(0, 10**6)), clock)
        patch.setattr(engine.runner, "propose", oracle.propose)
        switches = data.draw(st.dictionaries(st.integers(1, 20), specs, max_size=3))
        first = data.draw(specs)
        spec, spec_end, _ = reply(engine, prompt, sampling, first, clock, switches)
    assert spec_end.ids == plain_end.ids
    assert (spec_end.reason, spec.n) == (plain_end.reason, plain.n)
    assert differing(spec, plain) == []
    usage = spec_end.usage
    assert usage.n_rounds + usage.n_accepted + usage.n_plain_steps == len(spec_end.ids)


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_really_accepts_drafts_here(engine: Engine, policy: Policy) -> None:
    """So that the property above is about something."""
    prompt, sampling = random_ids(engine, 20, seed=4), Sampling(temperature=0.7, seed=5)
    steps: dict[str, Any] = {"policy": policy, "confidence_threshold": 0.0}
    clock = Clock(1)
    plain_spec = SpecOptions(enabled=False, policy=Policy.FIXED)
    _, plain_end, _ = reply(engine, prompt, sampling, plain_spec, clock)
    with pytest.MonkeyPatch.context() as patch:
        oracle = Oracle(len(prompt), plain_end.ids, 3, clock)
        patch.setattr(engine.runner, "propose", oracle.propose)
        _, end, events = reply(engine, prompt, sampling, SpecOptions(**steps), clock)
    assert end.ids == plain_end.ids
    rounds = [event for event in events if isinstance(event, RoundVerified)]
    assert {0} < {event.n_accepted for event in rounds}
