"""The filters against a naive reference, and sampled speculation against sampled plain text."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ds4chat.draft.verify import accept_greedy
from ds4chat.engine.sampling import choose, noise, probabilities
from ds4chat.protocol.types import Sampling

# Multiples of 1/8 make ties likely; weights then differ far more than rounding does.
LOGITS = st.lists(
    st.one_of(st.integers(-64, 64).map(lambda i: i / 8), st.just(-math.inf)),
    min_size=1,
    max_size=40,
).filter(lambda values: max(values) > -math.inf)
SAMPLING = st.builds(
    Sampling,
    temperature=st.sampled_from([0.25, 0.7, 1.0, 2.0]),
    top_k=st.integers(0, 45),
    top_p=st.sampled_from([0.0, 0.13, 0.51, 0.9, 0.97, 1.0]),
    min_p=st.sampled_from([0.0, 0.03, 0.21, 0.83]),
    seed=st.integers(-(2**63), 2**64 - 1),
)


def reference(logits: list[float], sampling: Sampling) -> dict[int, float]:
    """Filter one token at a time over a full sort; returns id to probability."""
    best = max(logits)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if sampling.top_k:
        order = order[: sampling.top_k]
    weight = {i: math.exp((logits[i] - best) / sampling.temperature) for i in order}
    total, so_far = math.fsum(weight.values()), 0.0
    kept: list[int] = []
    for i in order:
        is_full = sampling.top_p < 1 and so_far >= sampling.top_p * total
        if kept and (is_full or weight[i] < sampling.min_p):
            break
        kept.append(i)
        so_far += weight[i]
    kept_total = math.fsum(weight[i] for i in kept)
    return {i: weight[i] / kept_total for i in kept}


def is_borderline(logits: list[float], sampling: Sampling) -> bool:
    """Say whether top-p falls on a border of the running sum, where rounding may decide."""
    best = max(logits)
    order = sorted(logits, reverse=True)[: sampling.top_k or None]
    sums = np.cumsum([math.exp((x - best) / sampling.temperature) for x in order])
    return bool(np.any(np.abs(sums / sums[-1] - sampling.top_p) < 1e-12))


@given(logits=LOGITS, sampling=SAMPLING)
def test_filters_equal_a_naive_reference(logits: list[float], sampling: Sampling) -> None:
    if sampling.top_p < 1 and is_borderline(logits, sampling):
        return
    found = probabilities(np.array(logits, dtype=np.float32), sampling)
    expected = np.zeros(len(logits))
    for token, probability in reference(logits, sampling).items():
        expected[token] = probability
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


@given(logits=LOGITS, sampling=SAMPLING, position=st.integers(0, 2**40))
def test_the_choice_is_the_inverse_of_the_distribution(
    logits: list[float], sampling: Sampling, position: int
) -> None:
    row = np.array(logits, dtype=np.float32)
    token = choose(row, sampling, position)
    exact = probabilities(row, sampling)
    assert exact[token] > 0
    below, u = float(exact[:token].sum()), noise(sampling.seed, position)
    assert below - 1e-12 <= u <= below + exact[token] + 1e-12


def toy_logits(ids: list[int], salt: int) -> NDArray[np.float32]:
    """Logits of 6 tokens that depend on the last ids: a stand-in for a target model."""
    seed = abs(hash((salt, *ids[-2:])))
    return (np.random.default_rng(seed).standard_normal(6) * 1.5).astype(np.float32)


@given(
    salt=st.integers(0, 1000),
    sampling=SAMPLING,
    drafts=st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=6),
)
def test_sampled_speculative_text_equals_plain_text(
    salt: int, sampling: Sampling, drafts: list[list[int]]
) -> None:
    plain = [3]
    while len(plain) < 25:
        plain.append(choose(toy_logits(plain, salt), sampling, len(plain)))
    ids, turn = [3], 0
    anchor = choose(toy_logits(ids, salt), sampling, 1)
    while len(ids) < 25:
        proposal = drafts[turn % len(drafts)]
        timeline = [*ids, anchor, *proposal]
        ends = range(len(ids) + 1, len(timeline) + 1)
        choices = [choose(toy_logits(timeline[:n], salt), sampling, n) for n in ends]
        verdict = accept_greedy(proposal, choices)
        ids += [anchor, *proposal[: verdict.n_accepted]]
        anchor, turn = verdict.next_token, turn + 1
    assert ids[:25] == plain
