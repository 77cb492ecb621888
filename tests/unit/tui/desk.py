"""A chat without a terminal and an engine: both sides only take notes."""

from __future__ import annotations

from collections.abc import Sequence

from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Command, Load, Submit
from ds4chat.protocol.engine import Emit
from ds4chat.protocol.events import (
    Event,
    Hello,
    ModelReady,
    TokensCommitted,
    TurnFinished,
    TurnStarted,
)
from ds4chat.protocol.types import (
    PROTOCOL_VERSION,
    Channel,
    FinishReason,
    Source,
    Span,
    Token,
    Usage,
)
from ds4chat.tui.bridge import route
from ds4chat.tui.controller import ChatController
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.reports import EngineReports


class Link:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.is_alive = True

    def start(self, emit: Emit) -> None: ...
    def restart(self) -> None: ...
    def close(self) -> None: ...

    def send(self, command: Command) -> None:
        self.commands.append(command)


class View:
    """Notes what it is told, both as screen and as transcript."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.receipts: list[str] = []
        self.prompt = ""
        self.n_restarts = 0
        self.n_closes = 0
        self.rung: list[float] = []

    @property
    def transcript(self) -> View:
        return self

    def add_user(self, text: str, turn_id: int) -> None: ...
    def begin_reply(self, turn_id: int) -> None: ...
    def remove_from(self, turn_id: int) -> None: ...
    def append(
        self, turn_id: int, channel: Channel, spans: Sequence[Span], at_s: float = 0.0
    ) -> None: ...
    def clear(self) -> None: ...
    def show_now(self) -> None: ...
    def show_soon(self) -> None: ...

    def finish_reply(self, turn_id: int, receipt: str) -> None:
        self.receipts.append(receipt)

    def add_notice(self, text: str, level: str) -> None:
        self.said.append((level, text))

    def fill_prompt(self, text: str) -> None:
        self.prompt = text

    def restart_engine(self) -> None:
        self.n_restarts += 1

    def close_engine(self) -> None:
        self.n_closes += 1

    def redrawn(self) -> None:
        self.show_now()

    def reply_ended(self, seconds: float) -> None:
        self.rung.append(seconds)


class Desk:
    """A chat with a link and a view that only take notes."""

    def __init__(self) -> None:
        self.link = Link()
        self.view = View()
        load = Load(request_id=0, model_path="m.gguf")
        options = ChatOptions(log_path="/logs/engine.log")
        self.chat = ChatController(self.link, load, options, self.view)
        self.reports = EngineReports(self.chat)

    def report(self, *events: Event) -> None:
        for event in events:
            route(event, self.reports)

    def ready(self) -> None:
        self.report(hello(), ModelReady(info=default_info()))

    def submits(self) -> list[Submit]:
        return [c for c in self.link.commands if isinstance(c, Submit)]


def hello(version: int = PROTOCOL_VERSION) -> Hello:
    return Hello(protocol_version=version, build="test", pid=1)


def tokens(turn_id: int, text: str, channel: Channel = Channel.ANSWER) -> TokensCommitted:
    token = Token(
        id=len(text), source=Source.PLAIN, round=0, position=0, confidence=None, margin=0.1
    )
    span = Span(text=text, token=token)
    return TokensCommitted(turn_id=turn_id, channel=channel, spans=(span,))


def finished(
    turn_id: int, reason: FinishReason = FinishReason.STOP, message: str = ""
) -> TurnFinished:
    usage = Usage(n_tokens=1, decode_s=20.0, n_context=9)
    return TurnFinished(turn_id=turn_id, reason=reason, usage=usage, ids=(1,), message=message)


def started(turn_id: int) -> TurnStarted:
    return TurnStarted(turn_id=turn_id, lane=0, n_prompt=5, n_cached=0)
