"""How an answer ends inside a block: as in plain decoding, and nothing after it counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.protocol.events import RoundVerified, TokensCommitted
from ds4chat.protocol.types import FinishReason, Sampling
from tests.cases.replies import BLOCK, PLAIN, Reply, drafting, open_small, reply
from tests.engines import differing, other_id, random_ids

N_PROMPT = 21
WARM = Sampling(temperature=0.9, seed=4)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair")) as opened:
        yield opened


@pytest.fixture(scope="module")
def prompt(engine: Engine) -> list[int]:
    return random_ids(engine, N_PROMPT)


def ended(engine: Engine, prompt: list[int], end_ids: set[int], text: list[int]) -> Reply:
    """A speculative reply whose drafts are all right, equal to the plain one in what lasts."""
    ends = frozenset(end_ids)
    plain = reply(engine, prompt, spec=PLAIN, end_ids=ends, max_tokens=40)
    with drafting(engine, N_PROMPT, text, lambda n: BLOCK):
        spec = reply(engine, prompt, end_ids=ends, max_tokens=40)
    assert spec.ids == plain.ids
    assert spec.log.end.reason is plain.log.end.reason
    assert spec.log.answer == plain.log.answer
    assert differing(spec.session, plain.session) == []
    return spec


def text_of(engine: Engine, prompt: list[int], **options: Sampling) -> list[int]:
    return reply(engine, prompt, spec=PLAIN, max_tokens=20, **options).ids  # type: ignore[arg-type]


@pytest.mark.parametrize("at", range(8))
def test_an_end_at_any_place_of_an_accepted_block(
    engine: Engine, prompt: list[int], at: int
) -> None:
    """0 is the first token of all, 1..5 are drafts, 6 comes after a full block, 7 is next."""
    text = text_of(engine, prompt)
    assert text.index(text[at]) == at, "take another seed: the token came before"
    spec = ended(engine, prompt, {text[at]}, text)
    assert spec.ids == text[:at]
    assert spec.log.end.reason is FinishReason.STOP
    assert spec.session.n == N_PROMPT + at
    shown = [s.token.id for e in spec.events if isinstance(e, TokensCommitted) for s in e.spans]
    assert text[at] not in shown
    drafted = [i for e in spec.events if isinstance(e, RoundVerified) for i in e.proposal_ids]
    assert text[at] not in drafted, "the end is no draft that could be shown as a ghost"
    usage = spec.log.end.usage
    assert usage.n_accepted == usage.n_drafted == max(0, min(at, 6) - 1)


def test_the_first_of_two_ends_counts(engine: Engine, prompt: list[int]) -> None:
    text = text_of(engine, prompt)
    assert ended(engine, prompt, {text[2], text[4]}, text).ids == text[:2]


def test_an_end_that_only_the_drafter_wants_ends_nothing(
    engine: Engine, prompt: list[int]
) -> None:
    text = text_of(engine, prompt)
    wrong = other_id(engine, text[3])
    with drafting(engine, N_PROMPT, text, lambda n: 2):  # its third draft is `wrong`
        spec = reply(engine, prompt, end_ids=frozenset({wrong}), max_tokens=20)
    assert wrong not in text
    assert spec.ids == text
    assert spec.log.end.reason is FinishReason.LENGTH


def test_a_sampled_end_is_the_plain_end(engine: Engine, prompt: list[int]) -> None:
    text = text_of(engine, prompt, sampling=WARM)
    end = frozenset({text[3]})
    plain = reply(engine, prompt, spec=PLAIN, sampling=WARM, end_ids=end, max_tokens=20)
    with drafting(engine, N_PROMPT, text, lambda n: BLOCK):
        spec = reply(engine, prompt, sampling=WARM, end_ids=end, max_tokens=20)
    assert spec.ids == plain.ids == text[: text.index(text[3])]
    assert differing(spec.session, plain.session) == []


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_stop_text_inside_an_accepted_block(
    engine: Engine, prompt: list[int], at: int
) -> None:
    text = text_of(engine, prompt)
    stop = engine.tokenizer.decode(text[at : at + 1])
    plain = reply(engine, prompt, spec=PLAIN, stop=(stop,), max_tokens=20)
    with drafting(engine, N_PROMPT, text, lambda n: BLOCK):
        spec = reply(engine, prompt, stop=(stop,), max_tokens=20)
    assert spec.ids == plain.ids
    assert spec.log.end.reason is plain.log.end.reason is FinishReason.STOP
    assert spec.log.answer == plain.log.answer
    assert stop not in spec.log.answer
    assert differing(spec.session, plain.session) == []
