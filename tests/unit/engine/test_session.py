"""What a session promises besides exactness: ends, limits, failures, sources, reuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ds4chat.engine.engine import Engine
from ds4chat.engine.runner import Proposal, Timeline
from ds4chat.engine.session import Session
from ds4chat.errors import ContextFullError, EngineError, NonFiniteError
from ds4chat.protocol.types import Policy, Source, SpecOptions
from tests.engines import (
    SMALL,
    differing,
    open_pair,
    other_id,
    plain_tokens,
    random_ids,
    spec_tokens,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_pair(tmp_path_factory.mktemp("pair"), seed=31, **SMALL) as opened:
        yield opened


@pytest.fixture(scope="module")
def text(engine: Engine) -> list[int]:
    """Twelve plain tokens after the prompt, all different."""
    session = prompted(engine)
    tokens = plain_tokens(session, 12)
    assert len(set(tokens)) == 12
    return tokens


def prompted(engine: Engine, **sampling: float) -> Session:
    session = engine.session(**sampling)  # type: ignore[arg-type]
    session.sync(random_ids(engine, 20))
    return session


def ending(tmp_path: Path, end_id: int) -> Engine:
    return open_pair(tmp_path, seed=31, options={"end_ids": [end_id]}, **SMALL)


@pytest.mark.parametrize("at", range(1, 6))
def test_end_token_inside_an_accepted_block(
    engine: Engine, text: list[int], tmp_path: Path, at: int
) -> None:
    with ending(tmp_path, text[at]) as other:
        spec, plain = prompted(other), prompted(other)
        assert plain_tokens(plain, 12) == text[: at + 1]
        out = spec.speculate(text[0], 64, proposal=text[1:6])
        assert [t.id for t in out] == text[:at]
        assert spec.choose() == text[at]
        assert spec.next_source is Source.ACCEPTED
        assert differing(spec, plain) == []
        report = spec.last_report
        assert report is not None
        assert report.proposal == tuple(text[1:at])


def test_drafted_end_that_the_target_does_not_choose(
    engine: Engine, text: list[int], tmp_path: Path
) -> None:
    end_id = other_id(engine, max(text))
    with ending(tmp_path, end_id) as other:
        session = prompted(other)
        out = session.speculate(text[0], 64, proposal=[text[1], end_id, text[3]])
        assert [t.id for t in out] == text[:2]
        assert session.next_source is Source.FALLBACK
        assert session.choose() == text[2]


def test_end_token_is_never_evaluated(engine: Engine) -> None:
    session = prompted(engine)
    end_id = next(iter(engine.end_ids))
    for call in (session.step, lambda t: session.speculate(t, 8)):
        with pytest.raises(ValueError, match="ends the reply"):
            call(end_id)
    assert session.n == 20


@pytest.mark.parametrize(
    ("n_right", "source"), [(0, Source.FALLBACK), (3, Source.FALLBACK), (5, Source.BONUS)]
)
def test_sources(engine: Engine, text: list[int], n_right: int, source: Source) -> None:
    session = prompted(engine)
    wrong = [other_id(engine, text[1 + n_right])] * (5 - n_right)
    out = session.speculate(text[0], 64, proposal=text[1 : 1 + n_right] + wrong)
    assert [t.source for t in out] == [Source.PLAIN] + [Source.ACCEPTED] * n_right
    assert [t.position for t in out] == list(range(n_right + 1))
    assert {t.round for t in out} == {1}
    assert out[0].confidence is None
    assert all(0 <= (t.confidence or -1) <= 1 for t in out[1:])
    assert all(t.margin >= 0 for t in out)
    assert session.next_source is source
    follower = session.speculate(text[1 + n_right], 64, proposal=[])
    assert [t.source for t in follower] == [source]
    assert session.next_source is Source.PLAIN
    assert follower[0].round == 0


def test_a_token_of_the_callers_own_is_plain(engine: Engine, text: list[int]) -> None:
    session = prompted(engine)
    session.speculate(text[0], 64, proposal=text[1:3])
    assert session.next_source is Source.BONUS
    out = session.speculate(other_id(engine, text[3]), 1)
    assert out[0].source is Source.PLAIN


@pytest.mark.parametrize("budget", range(1, 8))
def test_budget(engine: Engine, text: list[int], budget: int) -> None:
    session = prompted(engine)
    out = session.speculate(text[0], budget, proposal=text[1:6])
    assert [t.id for t in out] == text[: min(budget, 6)]
    assert session.n == 20 + len(out)


@pytest.mark.parametrize("free", range(8))
def test_context_limit(engine: Engine, text: list[int], tmp_path: Path, free: int) -> None:
    with open_pair(tmp_path, seed=31, options={"ctx": 20 + free}, **SMALL) as small:
        session = prompted(small)
        out: list[int] = []
        while session.n < 20 + free:
            proposal = text[len(out) + 1 : len(out) + 6]
            out += [t.id for t in session.speculate(session.choose(), 64, proposal=proposal)]
        assert out == text[:free]
        with pytest.raises(ContextFullError, match=f"{20 + free}"):
            session.speculate(session.choose(), 64)
        assert session.n == 20 + free


def test_prompt_longer_than_the_context(tmp_path: Path) -> None:
    with (
        open_pair(tmp_path, seed=31, options={"ctx": 10}, **SMALL) as small,
        pytest.raises(ContextFullError, match="11 tokens"),
    ):
        small.session().sync(random_ids(small, 11))


def test_a_failing_drafter_leaves_plain_text(
    engine: Engine, text: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(timeline: Timeline, anchor: int) -> Proposal:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine.runner, "propose", fail)
    session = prompted(engine)
    assert spec_tokens(session, 12) == text
    assert "out of memory" in session.draft_error
    assert session.last_report is not None
    assert "out of memory" in session.last_report.reason


def test_a_drafter_that_computes_nan(
    engine: Engine, text: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nonsense(timeline: Timeline, anchor: int) -> Proposal:
        return Proposal(tokens=(3,) * 5, confidences=(float("nan"),) * 5, draft_s=0.1)

    monkeypatch.setattr(engine.runner, "propose", nonsense)
    session = prompted(engine)
    assert spec_tokens(session, 12) == text
    assert "not a number" in session.draft_error


def test_without_a_support_file(engine: Engine, text: list[int]) -> None:
    with Engine.open(engine.info.path, backend="cpu") as alone:
        session = prompted(alone)
        assert spec_tokens(session, 12) == text
        assert session.last_report is not None
        assert session.last_report.reason == "plain: no support file"
        assert alone.info.block_size == 0
        session = prompted(alone)
        out = session.speculate(text[0], 64, proposal=text[1:4])
        assert [t.id for t in out] == text[:4]


def test_keeping_it_on_overrides_the_policy_and_other_options_are_taken_up(
    engine: Engine,
) -> None:
    session = prompted(engine)
    session.set_spec(SpecOptions(policy=Policy.MONEY))
    session.set_spec(SpecOptions(policy=Policy.MONEY))
    assert session.drain_policy_events() == []
    proposed = []
    for draft_max in (None, 2):
        session.set_spec(SpecOptions(draft_max=draft_max), keep_on=True)
        assert [event.reason for event in session.drain_policy_events()] == [
            "on: you keep it on for this reply"
        ]
        session.speculate(session.choose(), 64)
        assert session.last_report is not None
        proposed.append(len(session.last_report.proposal))
    assert proposed[0] >= 1
    assert 1 <= proposed[1] <= 2


def test_switching_speculation_keeps_the_state(engine: Engine, text: list[int]) -> None:
    spec, plain = prompted(engine), prompted(engine)
    out: list[int] = []
    for enabled in (True, False, True, False):
        spec.set_spec(SpecOptions(policy=Policy.FIXED, enabled=enabled))
        out += [t.id for t in spec.speculate(spec.choose(), 3)]
        assert spec.last_report is not None
        assert (spec.last_report.reason == "plain: speculation is off") is not enabled
    assert out == text[: len(out)]
    plain_tokens(plain, len(out))
    assert differing(spec, plain) == []


def test_commit_filter_ends_a_round_early(engine: Engine, text: list[int]) -> None:
    seen: list[list[int]] = []

    def accept(ids: Sequence[int]) -> int:
        seen.append(list(ids))
        return 3

    spec, plain = prompted(engine), prompted(engine)
    spec.set_commit_filter(accept)
    out = spec.speculate(text[0], 64, proposal=text[1:6])
    assert seen == [text[:6]]
    assert [t.id for t in out] == text[:3]
    plain_tokens(plain, 3)
    assert differing(spec, plain) == []


def test_sync_reuses_a_prefix(engine: Engine) -> None:
    ids = random_ids(engine, 60)
    session = engine.session()
    assert session.sync(ids[:40]) == 0
    assert session.sync(ids) == 40
    assert session.sync(ids) == 60
    assert session.ids == tuple(ids)
    assert session.sync([*ids[:30], 7]) == 0
    fresh = engine.session()
    fresh.sync([*ids[:30], 7])
    assert differing(session, fresh) == []


def test_cancelled_prefill_keeps_what_was_evaluated(engine: Engine) -> None:
    class Cancelled(Exception):
        pass

    def cancel(done: int, total: int) -> None:
        assert total == 600
        if done:
            raise Cancelled

    ids = random_ids(engine, 600)
    session, whole = engine.session(), engine.session()
    with pytest.raises(Cancelled):
        session.sync(ids, progress=cancel)
    assert 0 < session.n < 600
    with pytest.raises(EngineError, match="no evaluated token"):
        session.choose()
    n_held = session.n
    assert session.sync(ids) == n_held
    whole.sync(ids)
    assert differing(session, whole) == []


def test_a_cancel_behind_the_last_chunk_loses_nothing(engine: Engine) -> None:
    def cancel(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    session = engine.session()
    with pytest.raises(KeyboardInterrupt):
        session.sync(random_ids(engine, 20), progress=cancel)
    assert session.choose() == prompted(engine).choose()


@pytest.mark.parametrize("ids", [[], [-1], [10**6]])
def test_sync_refuses_nonsense(engine: Engine, ids: list[int]) -> None:
    with pytest.raises(ValueError, match="token"):
        engine.session().sync(ids)


def test_proposals_are_checked(engine: Engine, text: list[int]) -> None:
    session = prompted(engine)
    with pytest.raises(ValueError, match="at most 7"):
        session.speculate(text[0], 64, proposal=[5] * 8)
    with pytest.raises(ValueError, match="vocabulary"):
        session.speculate(text[0], 64, proposal=[10**6])
    with pytest.raises(ValueError, match="max_tokens"):
        session.speculate(text[0], 0)
    assert session.n == 20


def test_nan_weights_end_the_turn_alike_in_both_modes(
    engine: Engine, text: list[int], tmp_path: Path
) -> None:
    """A NaN in the output row of one token poisons every logit row from then on."""
    with open_pair(tmp_path, seed=31, **SMALL) as broken:
        weight = np.array(broken.runner.target.weights.embed)
        weight[text[3]] = np.nan
        object.__setattr__(broken.runner.target.weights, "embed", mx.array(weight))
        for decode in (plain_tokens, spec_tokens):
            session = prompted(broken)
            with pytest.raises(NonFiniteError):
                decode(session, 12)
            assert session.ids[20:] == tuple(text[:4])
        session = prompted(broken)
        out = session.speculate(text[0], 64, proposal=text[1:6])
        assert [t.id for t in out] == text[:4]
        with pytest.raises(NonFiniteError):
            session.choose()


def test_nothing_ends_a_reply_on_request(
    engine: Engine, text: list[int], tmp_path: Path
) -> None:
    with ending(tmp_path, text[3]) as other:
        session = prompted(other)
        session.set_end_ids(frozenset())
        assert spec_tokens(session, 12) == text
