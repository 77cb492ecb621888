"""A client of the scripted engine that collects its events."""

from __future__ import annotations

import queue
from typing import Protocol, TypeVar

from ds4chat.demo import Reply, Script, ScriptedEngine
from ds4chat.demo.script import default_info
from ds4chat.protocol import commands as c
from ds4chat.protocol import events as e
from ds4chat.protocol.types import (
    Channel,
    Message,
    ModelInfo,
    Role,
    SpecOptions,
    ThinkMode,
)

WAIT_S = 120.0  # until a test gives up; nothing waits so long
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
