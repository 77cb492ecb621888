"""What is done while the device works: the next step's plan, and what the caller wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Runner, Timeline
from ds4chat.model import target
from ds4chat.model.decode_plan import DecodePlanner
from ds4chat.model.plan import Plan
from ds4chat.ops import dispatch
from ds4chat.ops.dispatch import Dispatcher
from ds4chat.protocol.types import Sampling
from tests.engines import differing, open_pair, plain_tokens, random_ids, spec_tokens
from tests.kernels.host_build import find_compiler

pytestmark = pytest.mark.skipif(
    find_compiler() is None, reason="MLX compiles what it fuses on the CPU"
)
N_PROMPT = 30
PAIR: dict[str, Any] = {
    "ratios": (0, 4),
    "n_hash": 1,
    "index_topk": 16,
    "sinkhorn_rounds": 2,
    "n_stages": 1,
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=43, **PAIR) as opened:
        yield opened


@pytest.fixture(autouse=True)
def like_a_gpu(engine: Engine) -> Iterator[None]:
    """Graphs are replayed and steps handed over, as on a GPU."""
    before = dispatch.current()
    dispatch.use(Dispatcher(backend="reference", is_replayed=True))
    yield
    dispatch.use(before)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Position and rows of the passes that were not planned ahead."""
    seen: list[tuple[int, int]] = []
    plan = DecodePlanner.plan

    def watched(self: DecodePlanner, ids: Sequence[int], n: int) -> Plan:
        seen.append((n, len(ids)))
        return plan(self, ids, n)

    monkeypatch.setattr(DecodePlanner, "plan", watched)
    return seen


def begun(engine: Engine) -> tuple[Runner, Timeline]:
    runner = Runner(engine.runner.target, engine.runner.drafter, is_row_exact=True)
    timeline = runner.new_timeline()
    for _ in runner.prefill(timeline, random_ids(engine, N_PROMPT)):
        pass
    return runner, timeline


def test_the_next_step_is_planned_during_a_step(
    engine: Engine, planned: list[tuple[int, int]]
) -> None:
    session = engine.session()
    session.sync(random_ids(engine, N_PROMPT))
    planned.clear()
    plain_tokens(session, 6)
    assert len(planned) <= 1


def test_a_plan_for_another_pass_is_not_used(
    engine: Engine, planned: list[tuple[int, int]]
) -> None:
    runner, timeline = begun(engine)
    runner.evaluate_rows(timeline, [5])
    assert timeline.ahead is not None
    assert (timeline.ahead.n, timeline.ahead.length) == (N_PROMPT + 1, 1)
    planned.clear()
    runner.evaluate_rows(timeline, [5])  # not committed: the same position again
    timeline.log.n += 1
    runner.evaluate_rows(timeline, [5, 6])
    assert planned == [(N_PROMPT, 1), (N_PROMPT + 1, 2)]
    runner.evaluate_rows(timeline, [5])
    assert len(planned) == 2  # that plan was still right


def test_a_cpu_plans_when_it_is_time(engine: Engine, planned: list[tuple[int, int]]) -> None:
    dispatch.use(Dispatcher(backend="reference"))
    runner, timeline = begun(engine)
    planned.clear()
    turns: list[int] = []
    for i in range(2):
        runner.evaluate_rows(timeline, [5], meanwhile=lambda: turns.append(1))
        timeline.log.n += 1
        assert timeline.ahead is None
        assert len(turns) == i + 1
    assert planned == [(N_PROMPT, 1), (N_PROMPT + 1, 1)]


def test_steps_planned_ahead_leave_the_state_of_steps_that_were_not(engine: Engine) -> None:
    one, two = engine.session(), engine.session()
    for session in (one, two):
        session.sync(random_ids(engine, 120))
    for token in plain_tokens(one, 12):
        two.timeline.ahead = None
        two.step(token)
    assert differing(one, two) == []


def noting(word: str, call: Callable[..., Any], order: list[str]) -> Callable[..., None]:
    def noted(*arrays: Any) -> None:
        order.append(word)
        call(*arrays)

    return noted


@pytest.mark.parametrize("is_row_exact", [True, False])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_the_caller_has_its_turn_once_while_the_device_works(
    engine: Engine, is_row_exact: bool, n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, timeline = begun(engine)
    runner.is_row_exact = is_row_exact
    runner.evaluate_rows(timeline, [5, 6, 7][:n_rows])  # traced by now
    monkeypatch.setattr(target, "EARLY_LAYERS", ())
    order: list[str] = []
    for name, word in (("async_eval", "start"), ("eval", "wait")):
        monkeypatch.setattr(mx, name, noting(word, getattr(mx, name), order))
    runner.evaluate_rows(timeline, [5, 6, 7][:n_rows], meanwhile=lambda: order.append("turn"))
    if n_rows == 1 or not is_row_exact:  # a plan is made, and handed over too
        expected = ["start", "turn", "start", "wait"] + ["start", "start", "wait"] * (
            n_rows - 1
        )
    else:
        expected = ["start", "turn", "wait"]
    assert order == expected


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=2)])
def test_tokens_are_told_as_they_were_before_their_step(
    engine: Engine, sampling: Sampling
) -> None:
    session = engine.session()
    session.sync(random_ids(engine, N_PROMPT))
    session.set_sampling(sampling)
    for _ in range(4):
        row, token = session.logits(), session.choose()
        told = session.step(token)
        second = np.partition(row, -2)[-2]
        assert (told.id, told.logit) == (token, float(row[token]))
        assert told.margin == float(row.max()) - float(second)


def test_nothing_grows_from_step_to_step(engine: Engine) -> None:
    session = engine.session()
    session.sync(random_ids(engine, N_PROMPT))
    spec_tokens(session, 3)
    sizes = []
    for _ in range(3):
        plain_tokens(session, 8)
        mx.synchronize()
        sizes.append(mx.get_active_memory())
    assert max(sizes) - min(sizes) < 1 << 15
