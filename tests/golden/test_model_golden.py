"""The engine reproduces the vectors of an independent float64 implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ds4chat.draft.dspark import LazyProposal
from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Timeline
from tests.engines import GOLDEN_SEED, open_pair

FOLDER = Path(__file__).parent / "tiny_v4"
TOLERANCE = 1e-4

Vectors = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    with np.load(FOLDER / "vectors.npz") as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def plain_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    options = {"kv_fp8": False}
    with open_pair(tmp_path_factory.mktemp("g"), seed=GOLDEN_SEED, options=options) as engine:
        yield engine


@pytest.fixture(scope="module")
def rounding_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("g"), seed=GOLDEN_SEED) as engine:
        yield engine


def run(engine: Engine, ids: list[int], size: Callable[[int], int]) -> tuple[Any, Timeline]:
    """Logits of every position, evaluated in passes of `size(position)` rows."""
    runner = engine.runner
    timeline, rows, n = runner.new_timeline(), [], 0
    assert runner.drafter is not None
    assert timeline.rings is not None
    while n < len(ids):
        part = ids[n : n + size(n)]
        plan = runner.target.plan(timeline.log, part, n, row_exact=len(part) <= 8)
        result = runner.target.evaluate(timeline.log, plan)
        assert result.capture is not None
        runner.drafter.append(timeline.rings, result.capture, plan)
        mx.eval(result.logits, timeline.arrays())
        rows.append(np.array(result.logits))
        n += len(part)
        timeline.log.n = n
    return np.concatenate(rows), timeline


def propose(engine: Engine, vectors: Vectors, n: int) -> tuple[LazyProposal, Any]:
    ids = vectors["tokens"].tolist()
    logits, timeline = run(engine, ids[:n], lambda _: 64)
    drafter = engine.runner.drafter
    assert drafter is not None
    assert timeline.rings is not None
    anchor = int(vectors[f"d{n}_anchor"])
    return drafter.propose(timeline.rings, anchor, n), logits


CHUNKINGS: dict[str, Callable[[int], int]] = {
    "one shot": lambda n: 330,
    "37": lambda n: 37,
    "128": lambda n: 128,
    "130": lambda n: 130,
    "single steps": lambda n: 1,
    **{f"blocks of {k}": lambda n, k=k: k for k in range(2, 7)},  # type: ignore[misc]
    "mixed": lambda n: (1, 6, 33, 4, 9, 2, 140)[n % 7],
}


@pytest.mark.parametrize("chunking", list(CHUNKINGS))
def test_logits_for_any_chunking(plain_engine: Engine, vectors: Vectors, chunking: str) -> None:
    logits, _ = run(plain_engine, vectors["tokens"].tolist(), CHUNKINGS[chunking])
    assert np.abs(logits[266:] - vectors["logits_last"]).max() <= TOLERANCE
    rows = vectors["logits_rows_idx"]
    assert np.abs(logits[rows] - vectors["logits_rows"]).max() <= TOLERANCE
    assert np.array_equal(logits.argmax(axis=1), vectors["argmax"])


def test_blocks_with_partial_commits(plain_engine: Engine, vectors: Vectors) -> None:
    """Passes of 1..6 rows of which 1.. all are kept; the rows behind hold wrong tokens."""
    ids = vectors["tokens"].tolist()
    runner, rng = plain_engine.runner, np.random.default_rng(5)
    timeline, rows = runner.new_timeline(), []
    while timeline.log.n < len(ids):
        n = timeline.log.n
        kept = ids[n : n + int(rng.integers(1, 7))]
        wrong = rng.integers(0, 500, int(rng.integers(0, 7 - len(kept)))).tolist()
        rows.append(runner.evaluate_rows(timeline, kept + wrong)[: len(kept)])
        timeline.log.n = n + len(kept)
        timeline.log.poison()
    logits = np.concatenate(rows)
    assert np.abs(logits[266:] - vectors["logits_last"]).max() <= TOLERANCE
    at = vectors["logits_rows_idx"]
    assert np.abs(logits[at] - vectors["logits_rows"]).max() <= TOLERANCE


@pytest.mark.parametrize("n", [60, 200])
def test_draft_block(plain_engine: Engine, vectors: Vectors, n: int) -> None:
    lazy, logits = propose(plain_engine, vectors, n)
    assert int(logits[-1].argmax()) == int(vectors[f"d{n}_anchor"])
    assert np.array(lazy.tokens).tolist() == vectors[f"d{n}_tokens"].tolist()
    for name, found in (
        ("base_logits", lazy.base_logits),
        ("logits", lazy.logits),
        ("confidence_logit", lazy.confidence_logits),
    ):
        assert np.abs(np.array(found) - vectors[f"d{n}_{name}"]).max() <= TOLERANCE


@pytest.mark.parametrize("chunking", ["one shot", "37", "single steps", "blocks of 6"])
def test_round_trips(rounding_engine: Engine, vectors: Vectors, chunking: str) -> None:
    logits, _ = run(rounding_engine, vectors["tokens"].tolist(), CHUNKINGS[chunking])
    wanted = np.concatenate([vectors["logits_quantsim_rows"], vectors["logits_quantsim_last"]])
    found = np.concatenate([logits[vectors["logits_quantsim_rows_idx"]], logits[314:]])
    error = np.abs(found - wanted).max(axis=1)
    assert np.median(error) <= 3e-2
    assert (error <= 5e-2).mean() >= 0.75
    assert (found.argmax(axis=1) == wanted.argmax(axis=1)).mean() >= 0.96


@pytest.mark.parametrize("n", [60, 200])
def test_draft_block_with_round_trips(
    rounding_engine: Engine, vectors: Vectors, n: int
) -> None:
    renamed = {
        k.replace(f"d{n}q_", f"d{n}_"): v for k, v in vectors.items() if f"d{n}_" not in k
    }
    lazy, _ = propose(rounding_engine, renamed, n)
    assert np.array(lazy.tokens).tolist() == renamed[f"d{n}_tokens"].tolist()
    error = np.abs(np.array(lazy.confidence_logits) - renamed[f"d{n}_confidence_logit"])
    assert np.median(error) <= 3e-2


def test_capture(plain_engine: Engine, vectors: Vectors) -> None:
    runner = plain_engine.runner
    timeline, ids = runner.new_timeline(), vectors["tokens"].tolist()
    plan = runner.target.plan(timeline.log, ids, 0, row_exact=False)
    capture = runner.target.evaluate(timeline.log, plan).capture
    assert np.abs(np.array(capture)[-4:] - vectors["main_hidden_last4"]).max() <= TOLERANCE
