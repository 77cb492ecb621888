"""131,072 equal characters: tokenised with work in step with their number, the screen alive."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from ds4chat.engine.engine import Engine
from ds4chat.protocol.commands import Submit, Tokenize
from ds4chat.protocol.events import Done, Tokenized
from ds4chat.protocol.types import FinishReason
from tests.cases.replies import VERY_SMALL, open_small, reply
from tests.cases.work import Work
from tests.make_pair import PairPaths, make_pair
from tests.pilot.driver import run_chat
from tests.unit.engine.test_host_real import Engine as RunningEngine

N = 131_072
UNITS = {"letters": "a", "digits": "7", "spaces": " ", "newlines": "\n", "cjk": "中"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with open_small(tmp_path_factory.mktemp("pair")) as opened:
        yield opened


@pytest.mark.parametrize("unit", UNITS.values(), ids=list(UNITS))
def test_equal_characters_are_tokenised_and_come_back(engine: Engine, unit: str) -> None:
    """Were it quadratic anywhere, this would take hours."""
    text = unit * N
    ids = engine.tokenize(text)
    assert engine.detokenize(ids) == text
    assert len(ids) <= N * len(unit.encode())


@pytest.mark.parametrize(
    "unit", ["ab", "a b", "hand the ", "e\u0301", "👩\u200d💻", "\ud800", "\x00"]
)
def test_repeated_words_and_odd_characters_too(engine: Engine, unit: str) -> None:
    text = unit * (N // len(unit))
    assert engine.detokenize(engine.tokenize(text)) == text.replace("\ud800", "\ufffd")


@pytest.mark.parametrize("unit", UNITS.values(), ids=list(UNITS))
def test_a_prompt_that_is_too_long_is_refused_without_being_read(
    engine: Engine, unit: str
) -> None:
    made = reply(engine, engine.render([{"role": "user", "content": unit * N}]))
    assert made.log.end.reason is FinishReason.CONTEXT_FULL
    assert made.session.n == 0


def test_the_engine_process_answers_for_it_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The tokens are made there: a screen never waits for them."""
    folder = tmp_path_factory.mktemp("engine")
    pair: PairPaths = make_pair(folder, seed=3, **VERY_SMALL)
    running = RunningEngine(pair, folder)
    running.start()
    try:
        for text in (unit * N for unit in "\n中"):
            number = running.number()
            running.link.send(Tokenize(request_id=number, text=text))
            assert running.answer(number) == Done(request_id=number)
            made = [event for event in running.events if isinstance(event, Tokenized)][-1]
            assert len(made.ids) >= N // 6
        log = running.reply("中" * N)
        assert log.end.reason is FinishReason.CONTEXT_FULL
        assert len(running.reply("go on", max_tokens=3).end.ids) == 3
    finally:
        running.link.close()


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in list(UNITS)[1:]]


@pytest.mark.parametrize("kind", ["letters", *SLOW])
async def test_a_paste_of_it_is_one_draft_and_keys_still_work(kind: str) -> None:
    """Counts of work instead of seconds: a key costs a few calls for each character."""
    text = UNITS[kind] * N
    async with run_chat() as chat:
        await chat.press("x")
        with Work() as before:
            await chat.press("y")
        await chat.press("backspace", "backspace")
        await chat.paste(text)
        assert chat.prompt.text == text
        with Work() as after:
            await chat.press("y")
        assert chat.prompt.text == text + "y"
        assert chat.engine.sent(Submit) == []
        assert after.calls < 2 * before.calls + 25 * N
        await chat.press("enter")
        await chat.until(lambda: chat.engine.sent(Submit))
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.engine.sent(Submit)[0].messages[-1].text.rstrip("y").strip() in (
            text.strip(),
            "",
        )


@pytest.mark.slow
def test_ten_megabytes_are_one_message(engine: Engine) -> None:
    words = itertools.cycle(("one ", "two\n", "three, ", "42 ", "中文 "))
    text = "".join(itertools.islice(words, 400_000))
    ids = engine.tokenize(text)
    assert engine.detokenize(ids) == text
