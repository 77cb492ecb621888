"""The float64 reference reproduces the golden vectors, which were made without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.make_pair import make_pair
from tests.reference import ReferencePair, TargetOutput, draft, read_pair, run_target

FOLDER = Path(__file__).parent / "tiny_v4"
STORED = 1e-6
"""The vectors are stored in float32, and logits reach 9: half a unit in the last place."""

Vectors = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    with np.load(FOLDER / "vectors.npz") as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ReferencePair:
    paths = make_pair(tmp_path_factory.mktemp("golden"), seed=11)
    return read_pair(paths.base, paths.support)


@pytest.fixture(scope="module")
def exact(pair: ReferencePair, vectors: Vectors) -> TargetOutput:
    return run_target(pair, vectors["tokens"].tolist(), round_trips=False)


@pytest.fixture(scope="module")
def rounded(pair: ReferencePair, vectors: Vectors) -> TargetOutput:
    return run_target(pair, vectors["tokens"].tolist(), round_trips=True)


def gap(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max())


def test_logits(exact: TargetOutput, vectors: Vectors) -> None:
    assert gap(exact.logits[266:], vectors["logits_last"]) <= STORED
    at = vectors["logits_rows_idx"]
    assert gap(exact.logits[at], vectors["logits_rows"]) <= STORED
    assert np.array_equal(exact.logits.argmax(axis=1), vectors["argmax"])


def test_all_positions_to_float64(exact: TargetOutput, vectors: Vectors) -> None:
    top = exact.logits.max(axis=1)
    total = np.log(np.exp(exact.logits - top[:, None]).sum(axis=1)) + top
    assert gap(total, vectors["logsumexp"]) <= 1e-12


def test_layers_and_captures(exact: TargetOutput, vectors: Vectors) -> None:
    assert gap(exact.layers[:, -4:], vectors["layer_out_last4"]) <= STORED
    assert gap(exact.captures[-4:], vectors["main_hidden_last4"]) <= STORED


def test_margins(exact: TargetOutput) -> None:
    """The README that came with the vectors states both smallest margins."""
    assert exact.router_margin.min() == pytest.approx(4.8e-4, rel=0.02)
    assert exact.index_margin.min() == pytest.approx(3.2e-4, rel=0.02)


def test_logits_with_round_trips(rounded: TargetOutput, vectors: Vectors) -> None:
    assert gap(rounded.logits[314:], vectors["logits_quantsim_last"]) <= STORED
    at = vectors["logits_quantsim_rows_idx"]
    assert gap(rounded.logits[at], vectors["logits_quantsim_rows"]) <= STORED


@pytest.mark.parametrize("name", ["d60", "d200", "d60q", "d200q"])
def test_draft_block(
    pair: ReferencePair,
    exact: TargetOutput,
    rounded: TargetOutput,
    vectors: Vectors,
    name: str,
) -> None:
    target = rounded if name.endswith("q") else exact
    n = int(vectors[f"{name}_prefix"])
    anchor = int(target.logits[n - 1].argmax())
    assert anchor == int(vectors[f"{name}_anchor"])
    block = draft(pair, target.captures[:n], anchor, round_trips=target is rounded)
    assert block.tokens == vectors[f"{name}_tokens"].tolist()
    assert gap(block.base_logits, vectors[f"{name}_base_logits"]) <= STORED
    assert gap(block.logits, vectors[f"{name}_logits"]) <= STORED
    assert gap(block.confidence_logits, vectors[f"{name}_confidence_logit"]) <= STORED
