from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Protocol, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.demo import TOUR, Failure, Reply, Script, ScriptedEngine
from ds4chat.demo.script import default_info, pieces_of, split_text
from ds4chat.errors import EngineError
from ds4chat.protocol import commands as c
from ds4chat.protocol import events as e
from ds4chat.protocol.types import (
    Channel,
    FinishReason,
    Message,
    ModelInfo,
    Policy,
    Role,
    Source,
    SpecOptions,
    SpecState,
    ThinkMode,
)

WAIT_S = 20.0
INFO = default_info()
OFF = SpecOptions(enabled=False)
ASK = Message(role=Role.USER, text="hello")
TEXT = "Some words that fill a few rounds, and then some more of them. " * 3

E = TypeVar("E")


class Client:
    """Collects the events of an engine, in order."""

    def __init__(self, script: Script) -> None:
        self.engine = ScriptedEngine(script, pace=0)
        self.events: list[e.Event] = []
        self._arrived: queue.Queue[e.Event] = queue.Queue()
        self._n_requests = 0

    def until(self, kind: type[E]) -> E:
        while True:
            event = self._arrived.get(timeout=WAIT_S)
            self.events.append(event)
            if isinstance(event, kind):
                return event

    def start(self) -> None:
        self.engine.start(self._arrived.put)
        self.until(e.Hello)
        self.load()

    def load(self) -> None:
        self.engine.send(c.Load(request_id=self.request_id(), model_path=""))
        self.until(e.Done)

    def request_id(self) -> int:
        self._n_requests += 1
        return self._n_requests

    def submit(
        self,
        *messages: Message,
        turn_id: int = 7,
        think: ThinkMode = ThinkMode.OFF,
        spec: SpecOptions | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.engine.send(
            c.Submit(
                request_id=self.request_id(),
                turn_id=turn_id,
                messages=messages or (ASK,),
                think=think,
                spec=spec or SpecOptions(),
                max_tokens=max_tokens,
            )
        )

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def text(self, channel: Channel = Channel.ANSWER) -> str:
        parts = [
            event.spans for event in self.of(e.TokensCommitted) if event.channel is channel
        ]
        return "".join(span.text for spans in parts for span in spans)


class Opener(Protocol):
    def __call__(self, *replies: Reply, info: ModelInfo = ...) -> Client: ...


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        client.engine.close()
        assert not client.engine.is_alive


@pytest.fixture
def open_client(clients: list[Client]) -> Opener:
    def opener(*replies: Reply, info: ModelInfo = INFO) -> Client:
        client = Client(Script(replies=replies or (Reply(answer=TEXT),), info=info))
        clients.append(client)
        client.start()
        return client

    return opener


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


def test_limits_end_the_reply(open_client: Opener) -> None:
    client = open_client()
    client.submit(max_tokens=10)
    finished = client.until(e.TurnFinished)
    assert (finished.reason, len(finished.ids)) == (FinishReason.LENGTH, 10)
    small = open_client(info=default_info(ctx=20))
    small.submit()
    finished = small.until(e.TurnFinished)
    assert finished.reason is FinishReason.CONTEXT_FULL
    assert finished.usage.n_context == 20


def test_a_conversation_longer_than_the_context_is_refused(open_client: Opener) -> None:
    client = open_client(info=default_info(ctx=20))
    client.submit(Message(role=Role.USER, text=TEXT))
    assert "the context 20" in client.until(e.Refused).message


def test_next_turn_reuses_the_ids_of_the_reply(open_client: Opener) -> None:
    client = open_client()
    client.submit()
    finished = client.until(e.TurnFinished)
    reply = Message(role=Role.ASSISTANT, text=client.text(), ids=finished.ids)
    client.submit(ASK, reply, Message(role=Role.USER, text="more"), turn_id=8)
    started = client.until(e.TurnStarted)
    assert started.n_cached == finished.usage.n_context
    client.until(e.TurnFinished)
    client.engine.send(c.CloseSession(request_id=90))
    client.submit(ASK, reply, Message(role=Role.USER, text="more"), turn_id=9)
    assert client.until(e.TurnStarted).n_cached == 0


def test_refusals(clients: list[Client], open_client: Opener) -> None:
    client = open_client(
        Reply(answer=TEXT, holds=(1,)),
        Reply(answer="", triggers=("secret",), refusal=Failure(message="no", hint="ask else")),
    )
    client.submit(Message(role=Role.USER, text="a secret"))
    assert client.until(e.Refused).hint == "ask else"
    client.submit()
    client.until(e.TokensCommitted)
    client.submit()
    assert "already running" in client.until(e.Refused).message
    unloaded = Client(Script(replies=(Reply(answer="x"),)))
    clients.append(unloaded)
    unloaded.engine.start(unloaded._arrived.put)
    unloaded.submit()
    assert "no model" in unloaded.until(e.Refused).message


def test_failed_load_is_refused_and_not_fatal(clients: list[Client]) -> None:
    failure = Failure(message="bad magic", hint="another file")
    client = Client(Script(replies=(Reply(answer="x"),), load_failure=failure))
    clients.append(client)
    client.engine.start(client._arrived.put)
    client.engine.send(c.Load(request_id=1, model_path="x"))
    failed = client.until(e.EngineFailed)
    assert (failed.message, failed.fatal) == ("bad magic", False)
    assert client.of(e.Refused)[0].message == "bad magic"
    assert client.of(e.ModelLoading)
    assert client.engine.is_alive


def test_crash_then_restart_goes_on(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, crash_after=2))
    client.submit()
    finished = client.until(e.TurnFinished)
    assert finished.reason is FinishReason.ERROR
    assert finished.ids
    assert client.until(e.EngineFailed).fatal
    client.submit()
    assert "not running" in client.until(e.Refused).message
    assert not client.engine.is_alive
    client.engine.restart()
    client.until(e.Hello)
    client.load()
    client.events.clear()
    client.submit()
    client.until(e.TurnFinished)
    assert client.text() == TEXT


def test_nonfinite_ends_the_turn_and_not_the_engine(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, nonfinite_after=1))
    client.submit()
    assert client.until(e.TurnFinished).reason is FinishReason.NONFINITE
    client.submit()
    assert client.until(e.TurnStarted).n_prompt > 0


def test_tokenize_and_shutdown(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, holds=(1,)))
    client.engine.send(c.Tokenize(request_id=90, text="one two"))
    assert "".join(client.until(e.Tokenized).texts) == "one two"
    client.submit()
    client.until(e.TokensCommitted)
    client.engine.send(c.Shutdown(request_id=91))
    assert client.until(e.TurnFinished).reason is FinishReason.CANCELLED
    while client.until(e.Done).request_id != 91:
        pass
    client.engine.close()
    assert not client.engine.is_alive


def test_closing_what_never_started_and_restarting_it() -> None:
    engine = ScriptedEngine(TOUR, pace=0)
    engine.close()
    engine.close()
    assert not engine.is_alive
    with pytest.raises(EngineError):
        engine.restart()


@given(text=st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    script = Script(replies=())
    pieces = pieces_of(script, text, Channel.ANSWER)
    assert "".join(piece.text for piece in pieces) == text
    assert all(0 <= piece.id < script.info.n_vocab for piece in pieces)


def test_every_command_is_answered_once(open_client: Opener) -> None:
    client = open_client()
    client.submit()
    client.until(e.TurnFinished)
    client.engine.send(c.Cancel(request_id=50))
    client.engine.send(c.Pause(request_id=51))
    client.engine.send(c.CloseSession(request_id=52))
    while client.until(e.Done).request_id != 52:
        pass
    answered = [x.request_id for x in client.events if isinstance(x, e.Done | e.Refused)]
    assert answered == [1, 2, 50, 51, 52]
    assert "no reply is running in lane 0" in client.of(e.Refused)[0].message


def test_a_paused_turn_waits_and_can_be_cancelled(open_client: Opener) -> None:
    client = open_client(Reply(answer=TEXT, holds=(1,)))
    for end, reason in (
        (c.Resume(request_id=61), FinishReason.STOP),
        (c.Cancel(request_id=61), FinishReason.CANCELLED),
    ):
        client.events.clear()
        client.submit()
        client.until(e.RoundVerified)
        client.engine.send(c.Pause(request_id=60))
        client.engine.send(c.Tokenize(request_id=62, text="still here"))
        client.until(e.Tokenized)
        assert len(client.of(e.RoundVerified)) == 1
        client.engine.send(end)
        assert client.until(e.TurnFinished).reason is reason


def test_each_commit_tells_the_lanes_time(open_client: Opener) -> None:
    client = open_client()
    client.submit()
    usage = client.until(e.TurnFinished).usage
    times = [chunk.at_s for chunk in client.of(e.TokensCommitted)]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] == pytest.approx(usage.decode_s)
