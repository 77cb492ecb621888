"""The reply loop over a scripted session."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from ds4chat.engine.policy_base import PolicyEvent
from ds4chat.engine.turn_plan import TurnControls, TurnPlan, TurnTools
from ds4chat.engine.turns import Turn
from ds4chat.errors import ContextFullError, EngineError, NonFiniteError
from ds4chat.protocol.events import Event, StatsSnapshot, TokensCommitted
from ds4chat.protocol.types import (
    FinishReason,
    Message,
    Role,
    Sampling,
    Source,
    SpecOptions,
    SpecState,
    ThinkMode,
)
from ds4chat.text.parse import ChannelSplitter
from ds4chat.text.stops import StopGate
from tests.grammar import TurnLog, read_turns
from tests.scripted_engine import BLOCK, TALE, ScriptedEngine, ScriptedSession


def ticking(step_s: float = 0.05) -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: next(ticks) * step_s


@dataclass
class Desk:
    """An engine, one session, and what a turn over it reported."""

    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    events: list[Event] = field(default_factory=list)
    clock: Callable[[], float] = field(default_factory=ticking)
    session: ScriptedSession = field(init=False)
    controls: TurnControls = field(default_factory=TurnControls)
    turn_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.session = self.engine.session()

    def ids(self, text: str, think: ThinkMode = ThinkMode.OFF) -> tuple[int, ...]:
        return tuple(self.engine.render([Message(role=Role.USER, text=text)], think))

    def turn(
        self,
        text: str = "tell",
        *,
        think: ThinkMode = ThinkMode.OFF,
        spec: bool = True,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        ends: bool = True,
        temperature: float = 0.5,
    ) -> Turn:
        tokenizer = self.engine.tokenizer
        plan = TurnPlan(
            turn_id=next(self.turn_ids),
            lane=0,
            ids=self.ids(text, think),
            ctx=self.engine.info.ctx,
            end_ids=self.engine.end_ids if ends else frozenset(),
            close_think_id=tokenizer.specials.think_close,
            block_size=self.engine.info.block_size,
            sampling=Sampling(temperature=temperature),
            spec=SpecOptions(enabled=spec),
            max_tokens=max_tokens,
        )
        tools = TurnTools(
            splitter=ChannelSplitter(tokenizer, think),
            gate=StopGate(stop),
            text_of=tokenizer.piece,
            emit=self.events.append,
            clock=self.clock,
            plain_step_s=lambda: 0.02,
        )
        return Turn(plan, self.session, self.controls, tools)

    def finish(self, turn: Turn) -> TurnLog:
        while turn.advance():
            pass
        assert turn.advance() is False
        return list(read_turns(self.events).values())[-1]

    def run(self, text: str = "tell", **options: object) -> TurnLog:
        return self.finish(self.turn(text, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", [True, False])
def test_a_reply_is_whole_and_ends_before_the_end_token(spec: bool) -> None:
    desk = Desk()
    log = desk.run(spec=spec)
    assert log.answer == TALE
    assert log.end.reason is FinishReason.STOP
    assert log.end.ids == tuple(desk.engine.tokenize(TALE))
    assert desk.session.ids == desk.ids("tell") + log.end.ids
    assert desk.session.sampling.temperature == 0.5
    assert bool(log.rounds) is spec
    assert bool(log.plain) is not spec


def test_speculation_changes_sources_but_no_token() -> None:
    fast, slow = Desk().run(), Desk().run(spec=False)
    assert fast.end.ids == slow.end.ids
    assert {token.source for token in slow.tokens} == {Source.PLAIN}
    assert {token.source for token in fast.tokens} > {Source.ACCEPTED, Source.FALLBACK}


def test_rounds_are_reported_with_their_ghosts() -> None:
    log = Desk().run()
    first = log.rounds[0]
    assert (len(first.proposal_ids), first.n_accepted) == (BLOCK, BLOCK)
    missed = log.rounds[1]
    assert missed.n_accepted < len(missed.proposal_ids)
    assert all(missed.proposal_texts)
    assert missed.decision == "on: scripted"


def test_usage_counts_what_happened() -> None:
    log = Desk().run()
    usage = log.end.usage
    ends_in_round = log.tokens[-1].round > 0
    mean = (usage.n_accepted + usage.n_rounds - ends_in_round) / usage.n_rounds
    assert usage.accept_len == pytest.approx(mean)
    assert sum(usage.histogram) == usage.n_rounds
    assert usage.by_position[0][1] == usage.n_rounds
    assert usage.n_context == usage.n_prompt + usage.n_tokens
    assert usage.kv_bytes == 64 * usage.n_context
    assert usage.decode_s > 0
    assert usage.prefill_s > 0
    assert usage.first_token_s > usage.prefill_s
    assert usage.saved_s == pytest.approx(0.02 * usage.n_tokens - usage.decode_s)


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


def test_the_second_turn_reuses_what_is_held() -> None:
    desk = Desk()
    desk.run()
    log = desk.run()
    assert log.started.n_cached == log.end.usage.n_cached == log.started.n_prompt - 1


def test_prefill_reports_progress_in_order() -> None:
    log = Desk().run("tell me " * 20)
    done = [event.n_done for event in log.progress]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == log.progress[-1].n_total == log.started.n_prompt - log.started.n_cached


def test_progress_and_figures_come_at_most_ten_times_a_second() -> None:
    log = Desk(clock=lambda: 0.0).run("tell me " * 20)
    assert [event.n_done for event in log.progress] == [0, log.progress[-1].n_total]
    assert log.n_stats == 0
    desk = Desk(clock=ticking(0.001))
    log = desk.run(spec=False)
    assert 0 < log.n_stats < len(log.tokens) / 5
    stats = [event for event in desk.events if isinstance(event, StatsSnapshot)]
    assert all(event.tps > 0 for event in stats)


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


def test_reasoning_has_its_own_channel() -> None:
    log = Desk().run(think=ThinkMode.HIGH)
    assert log.thinking == "Hm, let me think about it."
    assert log.answer == TALE
    assert log.end.usage.n_thinking == len(Desk().engine.tokenize(log.thinking)) + 1


def test_stop_thinking_forces_the_marker_once() -> None:
    desk = Desk()
    turn = desk.turn(think=ThinkMode.HIGH)
    turn.advance()
    turn.advance()
    desk.controls.stop_thinking()
    turn.advance()
    desk.controls.stop_thinking()  # no longer thinking: nothing to stop
    log = desk.finish(turn)
    forced = [token for token in log.tokens if token.source is Source.FORCED]
    assert [token.id for token in forced] == [desk.engine.tokenizer.specials.think_close]
    assert "Hm, let me think about it.".startswith(log.thinking)
    assert len(log.thinking) < len("Hm, let me think about it.")


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


def test_speculation_can_be_switched_between_rounds() -> None:
    desk = Desk()
    turn = desk.turn("endless", max_tokens=60)
    turn.advance()
    turn.advance()
    desk.controls.set_spec(SpecOptions(enabled=False))
    turn.advance()
    turn.advance()
    desk.controls.set_spec(SpecOptions(enabled=True))
    log = desk.finish(turn)
    assert [event.state for event in log.policy] == [SpecState.OFF, SpecState.ON]
    assert len(log.plain) == 2
    assert len(log.rounds) > 1
    slow = Desk().run("endless", spec=False, max_tokens=60)
    assert log.end.ids == slow.end.ids


def test_without_a_drafter_every_step_is_plain_and_switching_says_nothing() -> None:
    desk = Desk(engine=ScriptedEngine(block_size=0))
    turn = desk.turn()
    turn.advance()
    desk.controls.set_spec(SpecOptions(enabled=True))
    log = desk.finish(turn)
    assert not log.rounds
    assert not log.policy
    assert log.end.usage.n_rounds == 0
    assert log.end.usage.accept_len is None


def test_a_failed_drafter_is_told_once() -> None:
    desk = Desk()
    turn = desk.turn("endless", max_tokens=40)
    turn.advance()
    turn.advance()
    desk.session.draft_error = "NaN in stage 1"
    log = desk.finish(turn)
    assert [event.state for event in log.policy] == [SpecState.UNAVAILABLE]
    assert [event.message for event in log.notices] == ["the drafter failed: NaN in stage 1"]
    again = desk.run("endless", max_tokens=10)
    assert not again.notices
    assert not again.policy


def test_what_the_policy_says_is_told_in_order() -> None:
    desk = Desk()
    turn = desk.turn("endless", max_tokens=60)
    stale = PolicyEvent(state=SpecState.ON, reason="of the last reply")
    desk.session.policy_events.append(stale)
    turn.advance()
    turn.advance()
    said = [
        PolicyEvent(state=SpecState.PARKED, reason="parked: 1.2 a round, break-even is 1.9"),
        PolicyEvent(state=SpecState.PARKED, reason="parked: 1.1 a round, break-even is 1.9"),
        PolicyEvent(state=SpecState.ON, reason="on again"),
    ]
    for event in said:
        desk.session.policy_events.append(event)
        turn.advance()
    log = desk.finish(turn)
    assert [(e.state, e.reason) for e in log.policy] == [(e.state, e.reason) for e in said]


def test_the_same_options_again_do_not_unpark() -> None:
    desk = Desk()
    turn = desk.turn("endless", max_tokens=60)
    turn.advance()
    desk.session.policy_events.append(PolicyEvent(state=SpecState.PARKED, reason="parked"))
    turn.advance()
    desk.controls.set_spec(SpecOptions(enabled=True))
    turn.advance()
    desk.controls.set_spec(SpecOptions(enabled=True, draft_max=2))
    log = desk.finish(turn)
    assert [event.state for event in log.policy] == [SpecState.PARKED, SpecState.ON]


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


def test_the_first_tokens_are_sent_with_their_round() -> None:
    desk = Desk()
    turn = desk.turn()
    turn.advance()
    turn.advance()
    committed = [event for event in desk.events if isinstance(event, TokensCommitted)]
    assert [span.token.position for span in committed[0].spans] == list(range(BLOCK + 1))


def test_reasoning_that_repeats_itself_at_temperature_0_is_told_of_once() -> None:
    (notice,) = Desk().run("loop", think=ThinkMode.HIGH, temperature=0.0).notices
    assert "repeats itself" in notice.message
    assert "temperature 1" in notice.hint
    assert Desk().run("loop", think=ThinkMode.HIGH, temperature=0.7).notices == []
    assert Desk().run("loop", think=ThinkMode.OFF, temperature=0.0).notices == []
    assert Desk().run("tell", think=ThinkMode.HIGH, temperature=0.0).notices == []
