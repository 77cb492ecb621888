"""Choosing a token: argmax, noise, filters, margins, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import ds4chat.engine.sampling as sampling_module
from ds4chat.engine.sampling import (
    check_sampling,
    choose,
    margin,
    noise,
    probabilities,
)
from ds4chat.errors import NonFiniteError, SettingsError
from ds4chat.protocol.types import Sampling


def logits_of(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def random_logits(n: int, seed: int, scale: float = 2.0) -> NDArray[np.float32]:
    values = np.random.default_rng(seed).standard_normal(n) * scale
    return values.astype(np.float32)


def chosen_ids(logits: NDArray[np.float32], sampling: Sampling, n: int = 400) -> set[int]:
    return {choose(logits, sampling, position) for position in range(n)}


def test_temperature_zero_takes_the_lowest_of_equal_ids() -> None:
    assert choose(logits_of(1, 3, 3, 2, 3), Sampling(), 0) == 1


def test_temperature_zero_ignores_filters_and_position() -> None:
    sampling = Sampling(top_k=1, top_p=0.1, min_p=1.0, seed=5)
    assert [choose(logits_of(0, 9, 8), sampling, p) for p in (0, 1, 99)] == [1, 1, 1]


def test_the_same_seed_and_position_give_the_same_token_in_any_order() -> None:
    logits = [random_logits(500, i) for i in range(40)]
    sampling = Sampling(temperature=1.5, seed=-12345)
    forward = [choose(row, sampling, 1000 + i) for i, row in enumerate(logits)]
    backward = [choose(logits[i], sampling, 1000 + i) for i in reversed(range(40))]
    assert backward[::-1] == forward
    assert len(set(forward)) > 10


def test_the_noise_never_changes_between_versions() -> None:
    """Pins the generator: saved sessions continue with it."""
    found = (noise(0, 0), noise(-1, 7), noise(2**63, 100_000))
    assert found == (0.7765204344395588, 0.37527023750934196, 0.3578504966755407)


def test_a_negative_seed_is_its_twos_complement() -> None:
    assert noise(-1, 3) == noise(2**64 - 1, 3)
    assert noise(-1, 3) != noise(1, 3)


def test_noise_is_uniform() -> None:
    """Kolmogorov-Smirnov over 4,000 positions; 1.95/sqrt(n) is the 0.1 % bound."""
    values = np.sort([noise(42, position) for position in range(4000)])
    grid = np.arange(1, 4001) / 4000
    distance = float(np.max(np.maximum(grid - values, values - (grid - 1 / 4000))))
    assert distance < 1.95 / math.sqrt(4000)
    assert values[0] >= 0
    assert values[-1] < 1


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0, seed=3),
        Sampling(temperature=0.6, seed=2**64 - 1),
        Sampling(temperature=1.3, top_p=0.8, seed=-9),
        Sampling(temperature=1.0, top_k=7, seed=4),
        Sampling(temperature=1.0, min_p=0.1, seed=5),
        Sampling(temperature=2.0, top_k=12, top_p=0.9, min_p=0.02, seed=6),
    ],
)
def test_draws_follow_the_exact_distribution(sampling: Sampling) -> None:
    """Chi-square over 6,000 positions; the bound is mean + 5 standard deviations."""
    logits, n = random_logits(20, 11), 6000
    counts = np.bincount([choose(logits, sampling, p) for p in range(n)], minlength=20)
    expected = probabilities(logits, sampling) * n
    assert not counts[expected == 0].any()
    usable = expected >= 5
    chi2 = float(np.sum((counts[usable] - expected[usable]) ** 2 / expected[usable]))
    free = int(usable.sum()) - 1
    assert chi2 < free + 5 * math.sqrt(2 * free)


def test_min_p_is_measured_after_temperature() -> None:
    """At temperature 2 the second token's weight is exp(-0.5) = 0.61, at 1 it is 0.37."""
    logits = logits_of(0, -1, -9)
    assert chosen_ids(logits, Sampling(temperature=1.0, min_p=0.5)) == {0}
    assert chosen_ids(logits, Sampling(temperature=2.0, min_p=0.5)) == {0, 1}


def test_top_p_is_taken_among_the_k_best() -> None:
    """Of ten equal tokens, four stay under top-k 4; half of their mass is two of them."""
    sampling = Sampling(temperature=1.0, top_k=4, top_p=0.5)
    assert chosen_ids(np.zeros(10, dtype=np.float32), sampling) == {0, 1}


def test_top_p_counts_the_mass_that_min_p_drops() -> None:
    """Weights 1, 1, 0.4 x 5: min-p leaves two; both are needed for 60 % of all mass."""
    low = math.log(0.4)
    sampling = Sampling(temperature=1.0, top_p=0.45, min_p=0.5)
    assert chosen_ids(logits_of(0, 0, *[low] * 5), sampling) == {0, 1}
    assert chosen_ids(logits_of(0, 0), Sampling(temperature=1.0, top_p=0.45)) == {0}


def test_ties_at_the_border_of_top_k_go_to_the_lowest_ids() -> None:
    assert chosen_ids(logits_of(1, 2, 1, 2, 1), Sampling(temperature=5.0, top_k=3)) == {0, 1, 3}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0, top_p=0.0),
        Sampling(temperature=1.0, top_k=1),
        Sampling(temperature=1.0, min_p=1.0),
        Sampling(temperature=1e-320),
    ],
)
def test_the_best_token_is_always_kept(sampling: Sampling) -> None:
    assert chosen_ids(logits_of(0, 0.5, 3, 2.9), sampling, n=50) == {2}


def test_a_wide_nucleus_is_found_without_losing_tokens() -> None:
    """5,000 equal tokens: the nucleus is far larger than the first sorted part."""
    logits = np.zeros(5000, dtype=np.float32)
    kept = probabilities(logits, Sampling(temperature=1.0, top_p=0.5))
    assert np.flatnonzero(kept).tolist() == list(range(2500))


def test_a_nucleus_of_equal_tokens_takes_the_lowest_ids() -> None:
    """3,000 tokens on two levels: half of the upper level's mass is its lower half of ids."""
    upper = np.arange(3000) % 3 == 1
    logits = np.where(upper, 0.0, -60.0).astype(np.float32)
    kept = probabilities(logits, Sampling(temperature=1.0, top_p=0.5))
    assert np.flatnonzero(kept).tolist() == np.flatnonzero(upper)[:500].tolist()


@pytest.mark.parametrize(("u", "token"), [(0.0, 1), (1 - 2.0**-53, 3)])
def test_the_ends_of_the_noise_choose_tokens_of_some_weight(
    monkeypatch: pytest.MonkeyPatch, u: float, token: int
) -> None:
    monkeypatch.setattr(sampling_module, "noise", lambda seed, position: u)
    logits = logits_of(-math.inf, 0, 0, 0, -math.inf)
    assert choose(logits, Sampling(temperature=1.0), 0) == token


def test_minus_infinity_is_never_chosen() -> None:
    logits = logits_of(-math.inf, 0, -math.inf, 0)
    assert chosen_ids(logits, Sampling(temperature=9.0)) == {1, 3}
    assert chosen_ids(logits, Sampling(temperature=9.0, top_k=3, top_p=0.99)) == {1, 3}
    assert choose(logits, Sampling(), 0) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("bad", "words"), [(math.nan, "logit 1 is NaN"), (math.inf, r"logit 1 is \+Inf")]
)
def test_nan_and_plus_infinity_stop(temperature: float, bad: float, words: str) -> None:
    with pytest.raises(NonFiniteError, match=words):
        choose(logits_of(5, bad, -math.inf), Sampling(temperature=temperature), 0)
    with pytest.raises(NonFiniteError, match=words):
        margin(logits_of(5, bad, -math.inf))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_but_minus_infinity_stops(temperature: float) -> None:
    with pytest.raises(NonFiniteError, match="all logits are -Inf"):
        choose(logits_of(-math.inf, -math.inf), Sampling(temperature=temperature), 0)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(temperature=-0.1), "temperature is -0.1"),
        (Sampling(temperature=math.nan), "temperature is nan"),
        (Sampling(temperature=math.inf), "temperature is inf"),
        (Sampling(top_p=1.01), "top-p is 1.01"),
        (Sampling(top_p=-0.5), "top-p is -0.5"),
        (Sampling(min_p=2.0), "min-p is 2.0"),
        (Sampling(top_k=-1), "top-k is -1"),
        (Sampling(seed=2**64), "seed is"),
        (Sampling(seed=-(2**63) - 1), "seed is"),
    ],
)
def test_unusable_settings_are_named(sampling: Sampling, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        check_sampling(sampling)
    with pytest.raises(SettingsError, match=words):
        choose(logits_of(0, 1), sampling, 0)


def test_margin_is_the_gap_of_the_two_best() -> None:
    assert margin(logits_of(1, 4, 2.5, -7)) == pytest.approx(1.5)
    assert margin(logits_of(4, 1, 4)) == 0


def test_margin_stays_finite_without_a_second_candidate() -> None:
    assert math.isfinite(margin(logits_of(4)))
    assert math.isfinite(margin(logits_of(4, -math.inf)))
