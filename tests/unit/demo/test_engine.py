"""How the scripted engine lives: loads, refuses, pauses, fails and ends."""

from __future__ import annotations

import pytest

from ds4chat.demo import TOUR, Failure, Reply, Script, ScriptedEngine
from ds4chat.demo.script import default_info
from ds4chat.errors import EngineError
from ds4chat.protocol import commands as c
from ds4chat.protocol import events as e
from ds4chat.protocol.types import (
    FinishReason,
    Message,
    Role,
)
from tests.unit.demo.client import ASK, TEXT, Client, Opener


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


def test_who_hears_the_end_of_a_turn_sees_a_dead_engine(clients: list[Client]) -> None:
    client = Client(Script(replies=(Reply(answer=TEXT, crash_after=2),)))
    clients.append(client)
    alive: list[bool] = []

    def emit(event: e.Event) -> None:  # on the engine's thread: nothing can come between
        if isinstance(event, e.TurnFinished | e.EngineFailed):
            alive.append(client.engine.is_alive)
        client._arrived.put(event)

    client.engine.start(emit)
    client.load()
    client.submit()
    client.until(e.EngineFailed)
    assert alive == [False, False]


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
