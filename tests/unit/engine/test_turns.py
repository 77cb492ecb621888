"""The reply loop over a scripted session."""

from __future__ import annotations

import pytest

from ds4chat.engine.policy_base import PolicyEvent
from ds4chat.protocol.events import StatsSnapshot, TokensCommitted
from ds4chat.protocol.types import (
    FinishReason,
    Source,
    SpecOptions,
    SpecState,
    ThinkMode,
)
from tests.scripted_engine import BLOCK, TALE, ScriptedEngine
from tests.unit.engine.turn_desk import Desk, ticking


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
