"""How a reply ends: limits, a full context, a cancel, a stop text, a failure."""

from __future__ import annotations

import itertools

import pytest

from ds4chat.errors import ContextFullError, EngineError, NonFiniteError
from ds4chat.protocol.types import (
    FinishReason,
)
from tests.grammar import read_turns
from tests.scripted_engine import BLOCK, TALE, ScriptedEngine
from tests.unit.engine.turn_desk import Desk


@pytest.mark.parametrize("spec", [True, False])
@pytest.mark.parametrize("limit", range(1, BLOCK + 4))
def test_max_tokens_is_kept_to_the_token(limit: int, spec: bool) -> None:
    desk = Desk()
    log = desk.run(max_tokens=limit, spec=spec)
    assert log.end.ids == tuple(desk.engine.tokenize(TALE)[:limit])
    assert log.end.reason is FinishReason.LENGTH
    assert str(limit) in log.end.message


@pytest.mark.parametrize("spec", [True, False])
@pytest.mark.parametrize("room", range(BLOCK + 3))
def test_no_position_past_the_context_is_evaluated(room: int, spec: bool) -> None:
    n_prompt = len(Desk().ids("tell"))
    desk = Desk(engine=ScriptedEngine(ctx=n_prompt + room))
    log = desk.run(spec=spec)
    assert log.end.reason is FinishReason.CONTEXT_FULL
    assert log.end.ids == tuple(desk.engine.tokenize(TALE)[:room])
    assert desk.session.max_seen <= n_prompt + room
    assert "--ctx" in log.end.hint


def test_an_end_that_just_fits_is_a_stop() -> None:
    fits = Desk().run("say hello")
    n = len(fits.end.ids)
    assert Desk().run("say hello", max_tokens=n).end.reason is FinishReason.STOP
    n_ctx = fits.end.usage.n_prompt + n
    desk = Desk(engine=ScriptedEngine(ctx=n_ctx))
    assert desk.run("say hello").end.reason is FinishReason.STOP


def test_without_end_ids_the_end_token_is_like_any_other() -> None:
    desk = Desk()
    turn = desk.turn("say hi", ends=False, max_tokens=30)
    plan = desk.engine.plans[desk.ids("say hi")]
    plan.cycle = plan.reply
    desk.engine.plans[desk.ids("say hi")] = plan
    log = desk.finish(turn)
    assert len(log.end.ids) == 30
    assert log.end.ids.count(desk.engine.tokenizer.specials.eos) > 1


@pytest.mark.parametrize("n_rounds", range(1, 5))
def test_cancel_keeps_what_was_made(n_rounds: int) -> None:
    desk = Desk()
    turn = desk.turn("endless")
    for _ in range(n_rounds):
        turn.advance()
    desk.controls.cancel()
    log = desk.finish(turn)
    assert log.end.reason is FinishReason.CANCELLED
    assert desk.session.ids == desk.ids("endless") + log.end.ids
    assert bool(log.end.ids) is (n_rounds > 1)


def test_cancel_before_the_start_still_starts_and_finishes() -> None:
    desk = Desk()
    desk.controls.cancel()
    log = desk.run()
    assert log.end.reason is FinishReason.CANCELLED
    assert desk.session.n == 0


def test_cancel_between_prefill_chunks() -> None:
    desk = Desk()
    desk.engine.during_prefill = lambda ids: desk.controls.cancel()  # type: ignore[method-assign]
    log = desk.run("tell me " * 20)
    assert log.end.reason is FinishReason.CANCELLED
    assert 0 < desk.session.n < log.started.n_prompt
    assert not log.tokens


def test_cancel_after_the_last_chunk_leaves_a_usable_session() -> None:
    desk = Desk()
    n_todo = len(desk.ids("tell"))
    calls = itertools.count()

    def cancel_late(ids: object) -> None:
        if desk.session.n + 8 >= n_todo:
            desk.controls.cancel()
        next(calls)

    desk.engine.during_prefill = cancel_late  # type: ignore[method-assign]
    log = desk.run()
    assert log.end.reason is FinishReason.CANCELLED
    assert desk.session.ids == desk.ids("tell")


@pytest.mark.parametrize("stop", ["fox", "brown fox sees", "é", "你", "7", "The quick"])
@pytest.mark.parametrize("spec", [True, False])
def test_a_stop_text_ends_the_reply_and_is_not_shown(stop: str, spec: bool) -> None:
    desk = Desk()
    log = desk.run(stop=(stop, "never there"), spec=spec)
    assert log.end.reason is FinishReason.STOP
    assert log.answer == TALE[: TALE.index(stop)]
    text = desk.engine.detokenize(log.end.ids)
    assert stop in text
    assert stop not in desk.engine.detokenize(log.end.ids[:-1])
    assert desk.session.ids == desk.ids("tell") + log.end.ids


def test_a_text_that_only_began_a_stop_is_shown_in_the_end() -> None:
    log = Desk().run("say all of it", stop=("it!",))
    assert log.answer == "all of it"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NonFiniteError("NaN", "fix"), FinishReason.NONFINITE),
        (ContextFullError("full", "fix"), FinishReason.CONTEXT_FULL),
        (EngineError("odd", "fix"), FinishReason.ERROR),
    ],
)
def test_known_failures_end_the_turn_in_words(error: Exception, reason: FinishReason) -> None:
    desk = Desk()
    turn = desk.turn("endless")
    turn.advance()
    turn.advance()

    def fail() -> int:
        raise error

    desk.session.choose = fail  # type: ignore[method-assign]
    log = desk.finish(turn)
    assert (log.end.reason, log.end.message, log.end.hint) == (reason, str(error), "fix")
    assert log.end.ids


def test_an_unknown_failure_is_the_callers_and_ends_the_turn_once() -> None:
    desk = Desk()
    turn = desk.turn("raise")
    with pytest.raises(RuntimeError, match="device is lost"):
        while turn.advance():
            pass
    turn.fail("broken")
    turn.fail("broken again")
    log = read_turns(desk.events)[1]
    assert log.end.message == "broken"
    assert len(log.end.ids) == 7
