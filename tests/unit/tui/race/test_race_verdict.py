from __future__ import annotations

from typing import Any

import pytest

from ds4chat.protocol.types import FinishReason
from ds4chat.tui.race.ask import Side
from ds4chat.tui.race.race import Race
from ds4chat.tui.race.verdict import Outcome
from tests.unit.tui.race.made import IDS, make_race, play


def raced(plain: tuple[int, ...], spec: tuple[int, ...], **of_spec: Any) -> Race:
    race, _ = make_race()
    play(race, Side.PLAIN, plain, logit=9.25)
    play(race, Side.SPEC, spec, logit=9.125, **of_spec)
    return race


def test_identical() -> None:
    race = raced(IDS, IDS)
    assert race.verdict.outcome is Outcome.IDENTICAL
    assert race.verdict.words() == "identical: all 5 tokens are the same"
    assert race.plain.text_sha256 == race.spec.text_sha256


def test_different_names_token_logits_and_gap() -> None:
    verdict = raced(IDS, (11, 12, 99, 14, 15)).verdict
    assert (verdict.outcome, verdict.n_equal) == (Outcome.DIFFERENT, 2)
    assert verdict.plain is not None
    assert verdict.spec is not None
    assert (verdict.plain.id, verdict.plain.logit) == (13, 9.25)
    assert (verdict.spec.id, verdict.spec.logit) == (99, 9.125)
    assert verdict.gap == 0.125
    words = verdict.words()
    for part in ("token 3", "'w13 '", "'w99 '", "9.25", "9.125", "gap", "0.125", "defect"):
        assert part in words


def test_one_that_ends_earlier_is_different() -> None:
    verdict = raced(IDS, IDS[:3]).verdict
    assert (verdict.outcome, verdict.n_equal) == (Outcome.DIFFERENT, 3)
    assert "speculative ended there" in verdict.words()
    assert verdict.gap is None


def test_the_same_tokens_with_another_end_are_different() -> None:
    verdict = raced(IDS, IDS, reason=FinishReason.LENGTH).verdict
    assert verdict.outcome is Outcome.DIFFERENT


@pytest.mark.parametrize("spec", [IDS, IDS[:2], ()])
def test_a_stopped_lane_is_unfinished(spec: tuple[int, ...]) -> None:
    verdict = raced(IDS, spec, reason=FinishReason.CANCELLED).verdict
    assert (verdict.outcome, verdict.n_equal) == (Outcome.UNFINISHED, len(spec))


def test_a_stopped_lane_that_had_parted_is_different() -> None:
    verdict = raced(IDS, (11, 77), reason=FinishReason.CANCELLED).verdict
    assert (verdict.outcome, verdict.n_equal) == (Outcome.DIFFERENT, 1)
