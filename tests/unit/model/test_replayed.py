"""Decode passes as replayed traces: the same text and, for single rows, the same state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from ds4chat.engine.session import Session
from ds4chat.model import target
from ds4chat.ops import dispatch
from ds4chat.ops.dispatch import Dispatcher
from tests.engines import differing, open_pair, plain_tokens, random_ids, spec_tokens
from tests.kernels.host_build import find_compiler

pytestmark = pytest.mark.skipif(
    find_compiler() is None, reason="MLX compiles what it fuses on the CPU"
)
PAIR: dict[str, Any] = {
    "ratios": (0, 4),
    "n_hash": 1,
    "index_topk": 16,
    "sinkhorn_rounds": 2,
    "n_stages": 1,
}
PROMPT = 70  # more compressed rows than the indexer keeps


@pytest.fixture
def replaying() -> Iterator[Dispatcher]:
    before, made = dispatch.current(), Dispatcher(backend="reference", is_replayed=True)
    yield made
    dispatch.use(before)


def begun(folder: Path) -> tuple[Session, Session]:
    """Two sessions behind one prompt."""
    engine = open_pair(folder, **PAIR)
    one, two = engine.session(), engine.session()
    for session in (one, two):
        session.sync(random_ids(engine, PROMPT))
    return one, two


def test_replayed_steps_are_those_that_are_built_anew(
    tmp_path: Path, replaying: Dispatcher
) -> None:
    eager, replayed = begun(tmp_path)
    expected = plain_tokens(eager, 9)
    dispatch.use(replaying)
    assert plain_tokens(replayed, 9) == expected
    assert differing(eager, replayed) == []


def test_one_trace_serves_the_passes_and_layers_of_a_kind(
    tmp_path: Path, replaying: Dispatcher
) -> None:
    _, session = begun(tmp_path)
    dispatch.use(replaying)
    replay = session._runner.target._replayed.replay
    plain_tokens(session, 4)
    after_four = replay.n_traces
    plain_tokens(session, 4)
    assert replay.n_traces == after_four


@pytest.mark.parametrize("layers", [(), (0, 1)])
def test_layers_may_begin_before_the_last_ones_are_built(
    tmp_path: Path, replaying: Dispatcher, layers: tuple[int, ...], monkeypatch: Any
) -> None:
    eager, replayed = begun(tmp_path)
    expected = plain_tokens(eager, 3)
    monkeypatch.setattr(target, "EARLY_LAYERS", layers)
    started: list[int] = []
    start: Any = mx.async_eval

    def watched(*arrays: Any) -> None:
        started.append(len(arrays))
        start(*arrays)

    monkeypatch.setattr(mx, "async_eval", watched)
    dispatch.use(replaying)
    plain_tokens(replayed, 1)
    began = len(started)
    assert plain_tokens(replayed, 2) == expected[1:]
    assert differing(eager, replayed) == []
    # the step, the plan of the next one, and each layer
    assert len(started) - began == 2 * (2 + len(layers))


@pytest.mark.slow
def test_replayed_rounds_keep_the_text(tmp_path: Path, replaying: Dispatcher) -> None:
    eager, replayed = begun(tmp_path)
    expected = plain_tokens(eager, 12)
    dispatch.use(replaying)
    assert spec_tokens(replayed, 12) == expected
