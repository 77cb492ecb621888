"""Drives a chat as a person would, and waits for what the engine's thread does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TypeVar
from unittest.mock import patch

from textual import events
from textual.pilot import Pilot

from ds4chat.demo import Reply, Script, ScriptedEngine
from ds4chat.protocol.commands import Command, Load
from ds4chat.protocol.engine import Emit
from ds4chat.protocol.events import Done, Event, Refused
from ds4chat.tui.app import Ds4ChatApp
from ds4chat.tui.controller import ChatController, Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens import keeping, leaving
from ds4chat.tui.screens.chat import ChatScreen
from ds4chat.tui.widgets.hint_line import HintLine
from ds4chat.tui.widgets.prompt import PromptArea

PATIENCE_S = 120.0  # only a hanging test ever waits so long
FOR_EVER_S = 3_600.0  # what a person has so long for; a machine with other work is no person

C = TypeVar("C", bound=Command)


class RecordingEngine(ScriptedEngine):
    """Remembers the commands that it was sent, and which it answered."""

    def __init__(self, script: Script) -> None:
        super().__init__(script, pace=0)
        self.commands: list[Command] = []
        self.answered: set[int] = set()  # requests of which the app was told

    def start(self, emit: Emit) -> None:
        def tell(event: Event) -> None:
            emit(event)
            if isinstance(event, Done | Refused):
                self.answered.add(event.request_id)

        super().start(tell)

    def send(self, command: Command) -> None:
        self.commands.append(command)
        super().send(command)

    def has_answered(self, kind: type[Command]) -> bool:
        """Whether all commands of a kind were answered: what they bring about is told."""
        return self.answered >= {command.request_id for command in self.sent(kind)}

    def sent(self, kind: type[C]) -> list[C]:
        return [command for command in self.commands if isinstance(command, kind)]


class Chat:
    """A running chat."""

    def __init__(self, app: Ds4ChatApp, pilot: Pilot[None], engine: RecordingEngine) -> None:
        self.app = app
        self.pilot = pilot
        self.engine = engine
        self.said: list[str] = []

    @property
    def screen(self) -> ChatScreen:
        return self.app.chat_screen

    @property
    def chat(self) -> ChatController:
        return self.screen.chat

    @property
    def prompt(self) -> PromptArea:
        return self.screen.query_one(PromptArea)

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the screen work until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.pilot.pause(0.002)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def paste(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Type a message and press Enter."""
        await self.paste(text)
        await self.press("enter")

    async def ask(self, text: str) -> None:
        """Send a message and wait for the end of its reply."""
        n_before = len(self.chat.conversation.turns)
        await self.send(text)
        await self.until(lambda: len(self.chat.conversation.turns) > n_before)
        await self.until(lambda: not self.chat.is_busy and not self._is_session_being_made())

    async def phase(self, phase: Phase) -> None:
        await self.until(lambda: self.chat.phase is phase)

    def _is_session_being_made(self) -> bool:
        """Whether a thread still makes the folder: the turn's snapshot comes after that."""
        desk = self.screen.sessions
        return desk is not None and desk._maker.is_at_it

    async def steps(self, n: int) -> None:
        """Wait until the engine has made n rounds of this chat, and their tokens came."""
        await self.until(
            lambda: self.chat.figures.counts.n_rounds >= n and self._has_tokens_of_rounds()
        )

    def _has_tokens_of_rounds(self) -> bool:
        turn = self.chat.conversation.turns[-1]
        n_tokens = sum(event.n_accepted + 1 for event in turn.rounds.values())
        return len(turn.ids) >= n_tokens

    def transcript(self) -> str:
        return self.screen.transcript.plain_text()

    def hints(self) -> list[str]:
        """What was said in passing, oldest first."""
        return self.said

    def picture(self) -> str:
        """What the terminal shows, as text."""
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return "\n".join(strip.text.rstrip() for strip in strips)


@asynccontextmanager
async def run_chat(
    *replies: Reply,
    script: Script | None = None,
    size: tuple[int, int] = (80, 24),
    options: ChatOptions | None = None,
    is_ready: bool = True,
    is_clock_stopped: bool = False,
) -> AsyncIterator[Chat]:
    """Run a chat.

    Args:
        replies: what the engine says, unless there is a script.
        script: all that the engine does.
        size: columns and rows.
        options: how the chat starts.
        is_ready: wait until the model is loaded.
        is_clock_stopped: reasoning takes as long as the script says, not as the machine takes.
    """
    engine = RecordingEngine(script or Script(replies=replies or (Reply(answer="Yes."),)))
    load = Load(request_id=0, model_path="model.gguf")
    app = Ds4ChatApp(engine, load, options or ChatOptions(is_animated=False))
    if is_clock_stopped:
        transcript = app.chat_screen.transcript
        transcript._clock = transcript._pace._clock = lambda: 0.0
    with ExitStack() as stack:
        stack.callback(engine.close)
        async with app.run_test(size=size) as pilot:
            chat = Chat(app, pilot, engine)
            stack.enter_context(listening(chat.said))
            stack.enter_context(patient())
            if is_ready:
                await chat.phase(Phase.READY)
            yield chat


@contextmanager
def listening(said: list[str]) -> Iterator[None]:
    """Write down every hint that is shown."""
    real = HintLine.say

    def say(line: HintLine, text: str, seconds: float = 3.0) -> None:
        said.append(text)
        real(line, text, FOR_EVER_S)

    with patch.object(HintLine, "say", say):
        yield


@contextmanager
def patient() -> Iterator[None]:
    """Let the first of two keys count for ever: the second comes when the machine lets it."""
    with (
        patch.object(keeping, "REWIND_ARMED_S", FOR_EVER_S),
        patch.object(leaving, "QUIT_ARMED_S", FOR_EVER_S),
    ):
        yield
