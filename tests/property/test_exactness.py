"""Speculation changes nothing: tokens and logical state are plain decoding's, bit for bit.

Accept counts are forced through `proposal=`: the plain text's own tokens, then wrong ones.
Before every round all slots outside the logical state are filled with NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds4chat.engine.engine import Engine
from ds4chat.engine.session import Session
from tests.engines import (
    SMALL,
    WIDE,
    differing,
    differing_states,
    open_half,
    open_pair,
    other_id,
    plain_tokens,
    random_ids,
    spec_tokens,
)

BLOCK = 5
ENDLESS: dict[str, Any] = {"end_ids": []}  # random text must not end before the planned cases
Case = tuple[int, int]  # (committed tokens before the round, drafts accepted in it)

MODELS: dict[str, Callable[[Path], Engine]] = {
    "f32": lambda folder: open_pair(folder, options=ENDLESS, seed=1, **SMALL),
    "f16": lambda folder: open_pair(folder, options=ENDLESS, seed=2, quant="f16", **SMALL),
    "q8_0": lambda folder: open_pair(folder, options=ENDLESS, seed=3, quant="q8_0", **SMALL),
    "q2": lambda folder: open_pair(folder, options=ENDLESS, seed=4, quant="q2", **WIDE),
    "mixed": lambda folder: open_pair(folder, options=ENDLESS, seed=5, quant="mixed", **WIDE),
    "half q8_0": lambda folder: open_half(folder, seed=6, quant="q8_0", **SMALL),
    "half mxfp4": lambda folder: open_half(folder, seed=7, quant="mxfp4", **SMALL),
}


@pytest.fixture(scope="module", params=list(MODELS))
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    with MODELS[request.param](tmp_path_factory.mktemp("pair")) as opened:
        yield opened


class PlainRun:
    """Plain decoding from a prompt, with the state after every token."""

    def __init__(self, engine: Engine, n_prompt: int, n_end: int) -> None:
        self.prompt = random_ids(engine, n_prompt, seed=n_prompt)
        session = engine.session()
        session.sync(self.prompt)
        self.tokens: dict[int, int] = {}
        self.states: dict[int, dict[str, Any]] = {n_prompt: session.state()}
        while session.n < n_end:
            token = session.choose()
            assert token not in engine.end_ids, "take another seed: the text ends early"
            self.tokens[session.n] = token
            session.step(token)
            self.states[session.n] = session.state()
        self.tokens[session.n] = session.choose()
        session.close()


def force_rounds(engine: Engine, run: PlainRun, cases: set[Case]) -> None:
    """Run rounds from the prompt, again and again, until every case occurred and was exact."""
    last = max(run.tokens)
    open_cases = set(cases)
    for _ in range(len(cases) + 2):
        if not open_cases:
            return
        session = engine.session()
        session.sync(run.prompt)
        while session.n < max(n for n, _ in open_cases | {(0, 0)}) + 1 and open_cases:
            n = session.n
            ahead = sorted(open_cases, key=lambda c: (c[0] < n, c[0], c[1]))
            wanted = next((c for c in ahead if c[0] >= n), None)
            if wanted is None:
                break
            n_accept = wanted[1] if wanted[0] == n else min(wanted[0] - n - 1, BLOCK)
            n_accept = min(n_accept, last - n - 1)
            one_round(engine, run, session, n_accept)
            open_cases.discard((n, n_accept))
        session.close()
    assert not open_cases, f"planned accept counts that did not occur: {sorted(open_cases)}"


def one_round(engine: Engine, run: PlainRun, session: Session, n_accept: int) -> None:
    """One round that must accept exactly `n_accept` drafts; compares the state after it."""
    n = session.n
    right = [run.tokens[n + 1 + i] for i in range(n_accept)]
    wrong = [other_id(engine, run.tokens[n + 1 + n_accept])] * (BLOCK - n_accept)
    session.poison()
    assert session.choose() == run.tokens[n]
    out = session.speculate(run.tokens[n], 64, proposal=right + wrong)
    assert [t.id for t in out] == [run.tokens[n + i] for i in range(n_accept + 1)]
    assert session.last_report is not None
    assert session.last_report.n_accepted == n_accept
    assert differing_states(session.state(), run.states[session.n]) == []


def cases_of(positions: Iterable[int], counts: Iterable[int]) -> set[Case]:
    return {(n, c) for n in positions for c in counts}


def test_every_count_at_every_residue(engine: Engine) -> None:
    run = PlainRun(engine, 8, 26)
    force_rounds(engine, run, cases_of(range(9, 13), range(BLOCK + 1)))


def test_counts_around_the_window(engine: Engine) -> None:
    run = PlainRun(engine, 122, 138)
    force_rounds(engine, run, cases_of(range(123, 130), (0, 2, 5)) | {(127, 1), (127, 4)})


def test_counts_around_512(engine: Engine) -> None:
    run = PlainRun(engine, 508, 520)
    force_rounds(engine, run, {(509, 1), (511, 0), (512, 5), (509, 5), (511, 3), (512, 0)})


def test_from_the_first_token_on(engine: Engine) -> None:
    run = PlainRun(engine, 1, 14)
    force_rounds(engine, run, cases_of((1, 2, 3, 4), (0, 1, 3, 5)))


def test_real_drafter_and_policies(engine: Engine) -> None:
    prompt = random_ids(engine, 40, seed=9)
    plain, spec = engine.session(), engine.session()
    plain.sync(prompt)
    spec.sync(prompt)
    wanted = plain_tokens(plain, 40)
    assert spec_tokens(spec, 40) == wanted
    assert differing(spec, plain) == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=21, **SMALL) as opened:
        yield opened


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_proposal_at_any_temperature(small: Engine, data: st.DataObject) -> None:
    """Random drafts, some right, of any length, at any temperature and seed."""
    sampling: dict[str, Any] = {
        "temperature": data.draw(st.sampled_from([0.0, 0.3, 1.0, 1.7])),
        "top_k": data.draw(st.sampled_from([0, 5])),
        "top_p": data.draw(st.sampled_from([1.0, 0.9])),
        "min_p": data.draw(st.sampled_from([0.0, 0.05])),
        "seed": data.draw(st.integers(0, 2**40)),
    }
    prompt = random_ids(small, data.draw(st.integers(1, 140)), seed=3)
    plain, spec = small.session(**sampling), small.session(**sampling)
    plain.sync(prompt)
    spec.sync(prompt)
    wanted = plain_tokens(plain, 14)
    proposals, at = [], 0
    while at < len(wanted) + 8:
        n_right = data.draw(st.integers(0, 7))
        n_wrong = data.draw(st.integers(0, 7 - n_right))
        right = wanted[at + 1 : at + 1 + n_right]
        proposals.append(right + data.draw(st.lists(st.integers(2, 505), max_size=n_wrong)))
        at += 1 + len(right)
    spec.poison()
    assert spec_tokens(spec, len(wanted), proposals) == wanted
    assert differing(spec, plain) == []


def test_sampled_text_is_the_same_under_every_policy(tmp_path: Path) -> None:
    texts = []
    for policy in ("fixed", "window", "money"):
        options = {"policy": policy, "confidence_threshold": 0.0}
        with open_pair(tmp_path, seed=22, options=options, **SMALL) as engine:
            session = engine.session(temperature=0.9, top_p=0.95, seed=77)
            session.sync(random_ids(engine, 30))
            texts.append(spec_tokens(session, 40))
            session = engine.session(temperature=0.9, top_p=0.95, seed=77)
            session.sync(random_ids(engine, 30))
            texts.append(plain_tokens(session, 40))
    assert all(text == texts[0] for text in texts)
    assert len(set(texts[0])) > 5


def test_poison_reaches_what_is_not_state(small: Engine) -> None:
    """The poison of these tests is real: it changes arrays, and none of it is state."""
    session = small.session()
    session.sync(random_ids(small, 9))
    before = session.state()
    session.poison()
    timeline = session.timeline
    assert any(np.isnan(np.array(a)).any() for a in timeline.arrays())
    assert differing_states(before, session.state()) == []
