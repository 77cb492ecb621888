"""Signals between the replies of a talk."""

from __future__ import annotations

import signal

import pytest

from ds4chat.cli.talk import StoppedError, Talk
from ds4chat.demo import TOUR, ScriptedEngine
from ds4chat.protocol.commands import Cancel, Command, Load, Submit
from ds4chat.protocol.events import Event
from ds4chat.protocol.types import FinishReason, Message, Role


class Noted(ScriptedEngine):
    """A scripted engine that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(TOUR, pace=0)
        self.told: list[Command] = []

    def send(self, command: Command) -> None:
        self.told.append(command)
        super().send(command)


def _ignore(_event: Event) -> None:
    pass


def _question() -> Submit:
    message = Message(role=Role.USER, text="Hello")
    return Submit(request_id=2, turn_id=2, messages=(message,))


def test_an_interrupt_after_a_reply_does_not_stop_the_next_one() -> None:
    engine = Noted()
    talk = Talk(engine)
    with talk.running():
        talk.load(Load(request_id=1, model_path=""), _ignore)
        signal.raise_signal(signal.SIGINT)
        assert talk.wait(lambda: "Hello") == "Hello"
        assert talk.ask(_question(), _ignore).reason is not FinishReason.CANCELLED
    assert not any(isinstance(command, Cancel) for command in engine.told)


def test_another_signal_before_the_prompt_is_not_forgotten() -> None:
    talk = Talk(Noted())
    with pytest.raises(StoppedError) as caught, talk.running():
        signal.raise_signal(signal.SIGTERM)
        talk.wait(lambda: "Hello")
    assert caught.value.status == 128 + signal.SIGTERM


def test_events_that_came_before_the_prompt_are_kept() -> None:
    talk = Talk(Noted())
    with talk.running():
        first = talk.next_event()
        assert not isinstance(first, int)
        talk._news.put(first)
        signal.raise_signal(signal.SIGINT)
        talk.wait(lambda: "Hello")
        assert talk.next_event() == first


def test_a_signal_does_not_stand_behind_what_an_engine_has_said() -> None:
    talk = Talk(Noted())
    with talk.running():
        first = talk.next_event()
        assert not isinstance(first, int)
        talk._news.put(first)
        signal.raise_signal(signal.SIGTERM)
        assert talk.next_event() == signal.SIGTERM
        assert talk.next_event() == first
