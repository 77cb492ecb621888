"""A reply that NaN broke off: marked on the screen and on the disk, and the chat goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.engine.engine import Engine
from ds4chat.protocol.commands import SaveSnapshot, Submit
from ds4chat.protocol.events import ModelReady
from ds4chat.protocol.types import FinishReason, Role, Sampling, SpecState
from tests.cases.replies import VERY_SMALL
from tests.grammar import TurnLog
from tests.make_pair import PairPaths, make_pair
from tests.pilot.driver import run_chat
from tests.pilot.keeping import LONG, kept, on_disk, saved
from tests.spoil import spoil
from tests.unit.engine.test_host_real import PLAIN
from tests.unit.engine.test_host_real import Engine as RunningEngine

NAN = float("nan")
Start = Callable[[PairPaths], RunningEngine]


async def test_a_broken_off_turn_is_marked_and_the_chat_goes_on(tmp_path: Path) -> None:
    script = Script(replies=(Reply(answer=LONG, nonfinite_after=3), Reply(answer="Whole.")))
    async with run_chat(script=script, options=kept(tmp_path)) as chat:
        await chat.ask("break")
        turn = chat.chat.conversation.turns[0]
        assert turn.reason is FinishReason.NONFINITE
        said = "".join(turn.answer)
        assert 0 < len(said) < len(LONG)
        assert "broken off" in chat.transcript()
        assert "computed NaN" in chat.transcript()
        assert not chat.engine.sent(SaveSnapshot), "a state that NaN has touched was saved"
        await chat.ask("again")
        assert "Whole." in chat.transcript()
        name = await saved(chat)
    first, second = on_disk(tmp_path, name).path()
    assert first.reason is FinishReason.NONFINITE
    assert first.answer == turn.answer
    assert second.reason is FinishReason.STOP
    async with run_chat(options=kept(tmp_path, resume=name)) as chat:
        await chat.until(lambda: len(chat.chat.conversation.turns) == 2)
        assert "broken off" in chat.transcript()
        await chat.ask("more")
        (submit,) = chat.engine.sent(Submit)
        assert [m.text for m in submit.messages if m.role is Role.USER] == [
            "break",
            "again",
            "more",
        ]
        assert submit.messages[1].ids == tuple(first.ids)


async def test_what_waits_is_not_sent_behind_a_broken_off_reply(tmp_path: Path) -> None:
    async with run_chat(Reply(answer=LONG, nonfinite_after=4, holds=(1,))) as chat:
        await chat.send("break")
        await chat.steps(1)
        await chat.send("this waits")
        await chat.press("f3")  # any command lets the script go on
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.prompt.text == "this waits"
        assert len(chat.engine.sent(Submit)) == 1


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[RunningEngine] = []

    def begin(pair: PairPaths) -> RunningEngine:
        made.append(RunningEngine(pair, tmp_path))
        made[-1].start()
        return made[-1]

    yield begin
    for engine in made:
        engine.link.close()


def letters(pair: PairPaths, text: str) -> list[tuple[str, int]]:
    with Engine.open(pair.base, backend="cpu") as engine:
        return [(letter, engine.tokenize(letter)[0]) for letter in text]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_engine_ends_the_turn_and_answers_the_next_question(
    tmp_path: Path, start: Start, temperature: float
) -> None:
    """The lane held what NaN has touched; the next conversation must not build on it."""
    sampling = Sampling(temperature=temperature, seed=3)
    pair = make_pair(tmp_path / "pair", seed=3, **VERY_SMALL)
    engine = start(pair)
    wanted = [
        engine.reply(text, max_tokens=12, sampling=sampling, ignore_end=True)
        for text in ("The quick", "fox")
    ]
    said = {token for log in wanted for token in log.end.ids}
    letter, row = next((a, i) for a, i in letters(pair, "~#@^$%&*+=") if i not in said)
    spoil(pair.base, "token_embd.weight", NAN, row=row)
    engine.load()
    ready = [event for event in engine.events if isinstance(event, ModelReady)][-1]
    assert any("token_embd.weight" in note for note in ready.info.notes)

    def ask(text: str) -> TurnLog:
        return engine.reply(text, max_tokens=12, sampling=sampling, ignore_end=True)

    assert ask("The quick").end.ids == wanted[0].end.ids
    broken = ask("The quick" + letter).end
    assert broken.reason is FinishReason.NONFINITE
    assert broken.ids == ()
    assert "NaN" in broken.message
    assert broken.hint
    assert ask("The quick" + letter).end.reason is FinishReason.NONFINITE
    log = ask("fox")
    assert log.started.n_cached == 0
    assert log.end.ids == wanted[1].end.ids
    assert ask("The quick").end.ids == wanted[0].end.ids


def test_a_spoiled_drafter_is_told_once_and_the_text_is_the_targets(
    tmp_path: Path, start: Start
) -> None:
    pair = make_pair(tmp_path / "pair", seed=3, **VERY_SMALL)
    spoil(pair.support, "mtp.0.main_norm.weight", NAN)
    engine = start(pair)
    assert any("support file" in note for note in engine.info.notes)
    log = engine.reply(max_tokens=24)
    assert log.end.ids == engine.reply(max_tokens=24, spec=PLAIN).end.ids
    assert len(log.end.ids) == 24
    assert [n.level for n in log.notices] == ["warning"]
    assert "drafter failed" in log.notices[0].message
    assert log.policy[-1].state is SpecState.UNAVAILABLE
    assert log.end.usage.n_accepted == 0
