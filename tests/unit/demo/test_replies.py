"""What the scripted engine answers: tokens, rounds, channels and figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.demo import Failure, Reply, Script
from ds4chat.demo.script import pieces_of, split_text
from ds4chat.demo.turn import PARK_WINDOW
from ds4chat.protocol import commands as c
from ds4chat.protocol import events as e
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Policy,
    Source,
    SpecOptions,
    SpecState,
    ThinkMode,
)
from tests.unit.demo.client import OFF, TEXT, Opener


def test_reply_text_and_ids_are_the_script(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT + "🚀 [/red]"))
    client.submit()
    finished = client.until(e.TurnFinished)
    assert client.text() == TEXT + "🚀 [/red]"
    spans = [span for event in client.of(e.TokensCommitted) for span in event.spans]
    assert tuple(span.token.id for span in spans) == finished.ids
    assert finished.reason is FinishReason.STOP
    assert finished.usage.n_tokens == len(finished.ids)


def test_turn_obeys_the_grammar(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, warning=Failure(message="careful")))
    client.submit()
    client.until(e.TurnFinished)
    kinds = [type(event) for event in client.events if getattr(event, "turn_id", None) == 7]
    first_token = kinds.index(e.TokensCommitted)
    assert kinds[0] is e.TurnStarted
    assert set(kinds[1 : first_token - 1]) == {e.PrefillProgress}
    assert e.PrefillProgress not in kinds[first_token:]
    assert kinds.count(e.TurnFinished) == 1
    assert kinds[-1] is e.TurnFinished
    assert client.of(e.Notice)[0].message == "careful"


def test_sources_positions_and_ghosts_tell_one_story(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, accepts=(5, 2, 0, 3)))
    client.submit()
    client.until(e.TurnFinished)
    rounds = client.of(e.RoundVerified)
    chunks = client.of(e.TokensCommitted)
    expected = Source.PLAIN
    for report, chunk in zip(rounds, chunks, strict=True):
        anchor, *drafts = [span.token for span in chunk.spans]
        assert anchor.source is expected
        assert (anchor.position, anchor.confidence) == (0, None)
        assert [t.source for t in drafts] == [Source.ACCEPTED] * report.n_accepted
        assert [t.position for t in drafts] == list(range(1, len(drafts) + 1))
        assert tuple(t.id for t in drafts) == report.proposal_ids[: report.n_accepted]
        assert len(report.confidences) == len(report.proposal_ids) <= 5
        is_full = report.n_accepted == len(report.proposal_ids)
        expected = Source.BONUS if is_full else Source.FALLBACK
    for report, after in zip(rounds, chunks[1:], strict=False):
        for ghost in report.proposal_texts[report.n_accepted :][:1]:
            assert ghost != after.spans[0].text
    assert {span.token.source for chunk in chunks for span in chunk.spans} == {
        Source.PLAIN,
        Source.ACCEPTED,
        Source.FALLBACK,
        Source.BONUS,
    }


def test_usage_adds_up(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, accepts=(5, 2, 0, 3)))
    client.submit()
    usage = client.until(e.TurnFinished).usage
    rounds = client.of(e.RoundVerified)
    assert usage.n_rounds == len(rounds)
    assert usage.n_accepted == sum(r.n_accepted for r in rounds)
    assert usage.n_drafted == sum(len(r.proposal_ids) for r in rounds)
    assert usage.decode_s == pytest.approx(sum(r.draft_s + r.verify_s for r in rounds))
    assert sum(usage.histogram) == len(rounds)
    assert usage.by_position[0] == (sum(r.n_accepted > 0 for r in rounds), len(rounds))
    assert usage.saved_s == pytest.approx(usage.n_tokens * 0.018 - usage.decode_s)


def test_speculation_off_is_plain_steps(open_client: Opener) -> None:
    client = open_client()
    client.submit(spec=OFF)
    usage = client.until(e.TurnFinished).usage
    assert client.of(e.PolicyChanged)[0].state is SpecState.OFF
    assert not client.of(e.RoundVerified)
    assert len(client.of(e.PlainStep)) == usage.n_tokens == usage.n_plain_steps
    assert usage.accept_len is None


def test_set_speculation_acts_from_the_next_step(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, holds=(2,)))
    client.submit()
    for _ in range(2):
        client.until(e.RoundVerified)
    client.engine.send(c.SetSpeculation(request_id=90, spec=OFF))
    client.until(e.TurnFinished)
    assert len(client.of(e.RoundVerified)) == 2
    assert client.of(e.PolicyChanged)[0].state is SpecState.OFF
    assert client.text() == TEXT


def test_a_parked_reply_can_be_kept_on(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT * 4, accepts=(0,), holds=(PARK_WINDOW + 1,)))
    client.submit()
    while client.until(e.PolicyChanged).state is not SpecState.PARKED:
        pass
    client.engine.send(c.SetSpeculation(request_id=90, spec=SpecOptions(), keep_on=True))
    client.until(e.TurnFinished)
    assert [event.state for event in client.of(e.PolicyChanged)] == [
        SpecState.PARKED,
        SpecState.ON,
    ]
    assert client.of(e.PolicyChanged)[1].reason == "you keep it on for this reply"


def test_cancel_keeps_what_was_made(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, holds=(3,)))
    client.submit()
    for _ in range(3):
        client.until(e.RoundVerified)
    client.engine.send(c.Cancel(request_id=90))
    finished = client.until(e.TurnFinished)
    assert finished.reason is FinishReason.CANCELLED
    assert 0 < len(finished.ids) == finished.usage.n_tokens
    assert client.text()
    assert TEXT.startswith(client.text())


def test_losing_speculation_parks_and_tries_again(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT * 3, accepts=(0,)))
    client.submit()
    client.until(e.TurnFinished)
    states = [change.state for change in client.of(e.PolicyChanged)]
    assert states[:2] == [SpecState.PARKED, SpecState.ON]
    assert "1.0 per block, break-even is 1.9" in client.of(e.PolicyChanged)[0].reason
    assert client.of(e.PlainStep)[0].reason == "parked"


def test_fixed_policy_never_parks(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT * 3, accepts=(0,)))
    client.submit(spec=SpecOptions(policy=Policy.FIXED))
    client.until(e.TurnFinished)
    assert not client.of(e.PolicyChanged)


def test_draft_max_and_confidence_limit_the_proposal(open_client: Opener) -> None:
    client = open_client()
    client.submit(spec=SpecOptions(draft_max=2))
    client.until(e.TurnFinished)
    assert max(len(r.proposal_ids) for r in client.of(e.RoundVerified)) == 2
    client.events.clear()
    client.submit(spec=SpecOptions(confidence_threshold=0.6))
    client.until(e.TurnFinished)
    assert min(min(r.confidences) for r in client.of(e.RoundVerified)) >= 0.6


def test_thinking_is_a_channel_and_its_end_counts(open_client: Opener) -> None:
    client = open_client(Reply(answer="Yes.", thinking="Let me see."))
    client.submit(think=ThinkMode.HIGH)
    finished = client.until(e.TurnFinished)
    assert client.text(Channel.THINKING) == "Let me see."
    assert client.text() == "Yes."
    assert finished.usage.n_thinking == len(split_text("Let me see.")) + 1
    client.events.clear()
    client.submit(think=ThinkMode.OFF)
    client.until(e.TurnFinished)
    assert client.text(Channel.THINKING) == ""


def test_stop_thinking_forces_the_end_marker(open_client: Opener) -> None:
    client = open_client(Reply(answer="Yes, of course.", thinking=TEXT, holds=(2,)))
    client.submit(think=ThinkMode.HIGH)
    for _ in range(2):
        client.until(e.RoundVerified)
    client.engine.send(c.StopThinking(request_id=90))
    client.until(e.TurnFinished)
    tokens = [s.token for chunk in client.of(e.TokensCommitted) for s in chunk.spans]
    assert sum(token.source is Source.FORCED for token in tokens) == 1
    assert len(client.text(Channel.THINKING)) < len(TEXT)
    assert client.text() == "Yes, of course."


@given(text=st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    script = Script(replies=())
    pieces = pieces_of(script, text, Channel.ANSWER)
    assert "".join(piece.text for piece in pieces) == text
    assert all(0 <= piece.id < script.info.n_vocab for piece in pieces)


def test_each_commit_tells_the_lanes_time(open_client: Opener) -> None:
    client = open_client()
    client.submit()
    usage = client.until(e.TurnFinished).usage
    times = [chunk.at_s for chunk in client.of(e.TokensCommitted)]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] == pytest.approx(usage.decode_s)
