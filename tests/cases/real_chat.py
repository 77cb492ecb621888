"""A chat on the screen with the real engine process behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ds4chat.client.spawn import EngineProcess
from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import Policy, Sampling, SpecOptions
from ds4chat.tui.app import Ds4ChatApp
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.sessions_hook import SessionsPlan
from tests.make_pair import PairPaths

PATIENCE_S = 120.0  # only a hanging test ever waits so long


class RealChat:
    """The app over the engine process, asked as the screen would."""

    def __init__(self, app: Ds4ChatApp, link: EngineProcess) -> None:
        self.app = app
        self.link = link
        self.screen = app.chat_screen
        self.chat = app.chat_screen.chat
        desk = app.chat_screen.sessions
        assert desk is not None
        self.desk = desk

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)

    async def ask(self, text: str) -> list[int]:
        """Send a message, wait for its reply and for the snapshot; the reply's tokens."""
        n_before = len(self.chat.conversation.turns)
        self.chat.send_text(text)
        await self.until(lambda: len(self.chat.conversation.turns) > n_before)
        await self.until(lambda: not self.chat.is_busy and not self.desk._maker.is_at_it)
        await self.until(lambda: not self.desk.kv._saves)
        return self.chat.conversation.turns[-1].ids

    def words(self) -> str:
        """What the transcript shows, on one line."""
        return " ".join(self.screen.transcript.plain_text().split())


@asynccontextmanager
async def real_chat(
    pair: PairPaths, folder: Path, *, resume: str = "", max_tokens: int = 12, **load: Any
) -> AsyncIterator[RealChat]:
    """Open the app over a pair; sessions lie in `folder/sessions`."""
    folder.mkdir(exist_ok=True)
    link = EngineProcess(folder / "engine.log")
    fields: dict[str, Any] = {
        "model_path": str(pair.base), "support_path": str(pair.support), "backend": "cpu",
        "ctx": 512, **load,
    }  # fmt: skip
    options = ChatOptions(
        is_animated=False,
        sampling=Sampling(temperature=0.0),
        spec=SpecOptions(policy=Policy.FIXED),
        max_tokens=max_tokens,
        ignore_end=True,
        sessions=SessionsPlan(root=folder / "sessions", is_usual=False, resume=resume),
    )
    app = Ds4ChatApp(link, Load(request_id=0, **fields), options)
    try:
        async with app.run_test(size=(100, 40)):
            chat = RealChat(app, link)
            await chat.until(lambda: chat.chat.phase in (Phase.READY, Phase.REFUSED))
            await chat.until(lambda: not chat.desk.kv._restores)
            yield chat
            chat.desk.close()
    finally:
        link.close()
