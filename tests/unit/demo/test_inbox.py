"""A command that comes in the very moment of an event is obeyed or refused, never lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.protocol import commands as c
from ds4chat.protocol import events as e
from ds4chat.protocol.types import FinishReason
from tests.unit.demo.client import TEXT, Client

LATE = 70


class Hasty(Client):
    """Answers an event on the engine's thread, once: nothing can come between."""

    def __init__(
        self, script: Script, when: Callable[[e.Event], bool], command: c.Command
    ) -> None:
        super().__init__(script)
        self.alive: list[bool] = []
        self._when = when
        self._command = command

    def emit(self, event: e.Event) -> None:
        self._arrived.put(event)
        if not self.alive and self._when(event):
            self.alive.append(self.engine.is_alive)
            self.engine.send(self._command)

    def start(self) -> None:
        self.engine.start(self.emit)
        self.load()

    def answer(self, request_id: int) -> e.Done | e.Refused:
        while True:
            event = self.until(object)
            if isinstance(event, e.Done | e.Refused) and event.request_id == request_id:
                return event


def first(kind: type[e.Event]) -> Callable[[e.Event], bool]:
    return lambda event: isinstance(event, kind)


@pytest.mark.parametrize(("holds", "kind"), [((0,), e.TurnStarted), ((1,), e.RoundVerified)])
def test_a_command_before_the_hold_ends_it(
    clients: list[Client], holds: tuple[int, ...], kind: type[e.Event]
) -> None:
    script = Script(replies=(Reply(answer=TEXT, holds=holds),))
    client = Hasty(script, first(kind), c.Cancel(request_id=LATE))
    clients.append(client)
    client.start()
    client.submit()
    assert client.until(e.TurnFinished).reason is FinishReason.CANCELLED


def test_a_command_before_the_hold_of_a_load_ends_it(clients: list[Client]) -> None:
    script = Script(replies=(Reply(answer=TEXT),), is_load_held=True)
    client = Hasty(script, first(e.ModelLoading), c.Tokenize(request_id=LATE, text="early"))
    clients.append(client)
    client.engine.start(client.emit)
    client.engine.send(c.Load(request_id=1, model_path=""))
    assert client.until(e.ModelReady).info == script.info


def test_a_command_that_waits_when_the_engine_dies_is_refused(clients: list[Client]) -> None:
    script = Script(replies=(Reply(answer=TEXT, crash_after=1),))
    client = Hasty(script, first(e.RoundVerified), c.Tokenize(request_id=LATE, text="late"))
    clients.append(client)
    client.start()
    client.submit()
    assert isinstance(client.answer(LATE), e.Refused)
    assert client.until(e.EngineFailed).fatal


def test_who_hears_of_the_end_is_refused(clients: list[Client]) -> None:
    script = Script(replies=(Reply(answer=TEXT),))
    client = Hasty(
        script,
        lambda event: event == e.Done(request_id=61),
        c.Tokenize(request_id=LATE, text="late"),
    )
    clients.append(client)
    client.start()
    client.engine.send(c.Shutdown(request_id=61))
    assert isinstance(client.answer(LATE), e.Refused)
    assert client.alive == [False]
