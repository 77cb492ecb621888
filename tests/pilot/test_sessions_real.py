"""A chat with the real engine: left, resumed in a new process, equal to one never left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ds4chat.client.spawn import EngineProcess
from ds4chat.protocol.commands import Load
from ds4chat.protocol.types import Policy, Sampling, SpecOptions, Token
from ds4chat.store.library import Library
from ds4chat.store.tree import Tree
from ds4chat.tui import commands
from ds4chat.tui.app import Ds4ChatApp
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.sessions_hook import SessionsPlan
from tests.make_pair import PairPaths, make_pair

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=31)


class RealChat:
    """The app over the engine process, asked as the screen would."""

    def __init__(self, app: Ds4ChatApp) -> None:
        self.app = app
        self.chat = app.chat_screen.chat
        desk = app.chat_screen.sessions
        assert desk is not None
        self.desk = desk

    async def ask(self, text: str) -> None:
        n_before = len(self.chat.conversation.turns)
        self.chat.send_text(text)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.chat.conversation.turns) == n_before or self.chat.is_busy:
                await asyncio.sleep(0)
            while self.desk._maker.is_at_it or self.desk.kv._saves:  # made first, then saved
                await asyncio.sleep(0)


@asynccontextmanager
async def real_chat(
    pair: PairPaths, root: Path, log: Path, resume: str = ""
) -> AsyncIterator[RealChat]:
    link = EngineProcess(log)
    load = Load(
        request_id=0, model_path=str(pair.base), support_path=str(pair.support), backend="cpu",
        ctx=1024,
    )  # fmt: skip
    options = ChatOptions(
        is_animated=False,
        sampling=Sampling(temperature=0.8, seed=7),
        spec=SpecOptions(policy=Policy.FIXED),
        max_tokens=70,
        sessions=SessionsPlan(root=root, is_usual=False, resume=resume),
    )
    app = Ds4ChatApp(link, load, options)
    try:
        async with app.run_test(size=(80, 24)):
            chat = RealChat(app)
            async with asyncio.timeout(PATIENCE_S):
                while chat.chat.phase is not Phase.READY or chat.desk.kv._restores:
                    await asyncio.sleep(0)
            yield chat
            chat.desk.close()
    finally:
        link.close()


def tokens(tree: Tree) -> list[list[Token]]:
    """Every token with its id, provenance, margin and logit."""
    return [[span.token for span in turn.spans()] for turn in tree.path()]


async def test_a_resumed_chat_equals_one_never_left(pair: PairPaths, tmp_path: Path) -> None:
    questions = ("The quick brown", "fox", "jumps over", "the lazy dog")
    async with real_chat(pair, tmp_path / "whole", tmp_path / "log") as chat:
        for text in questions:
            await chat.ask(text)
    library = Library(tmp_path / "left")
    name = ""
    for start in range(0, len(questions), 2):
        async with real_chat(pair, library.root, tmp_path / "log", name) as chat:
            for text in questions[start : start + 2]:
                await chat.ask(text)
        (name,) = library.names()
    (whole_name,) = Library(tmp_path / "whole").names()
    whole, left = Library(tmp_path / "whole").read(whole_name).tree, library.read(name).tree
    assert [turn.question for turn in left.path()] == list(questions)
    assert tokens(left) == tokens(whole)
    assert sum(map(len, tokens(left))) > 200
    for one, other in zip(left.path(), whole.path(), strict=True):
        assert one.usage is not None
        assert other.usage is not None
        assert one.usage.n_cached == other.usage.n_cached
    before = left.path()[1].usage
    after = left.path()[2].usage
    assert before is not None
    assert after is not None
    assert after.n_cached == before.n_prompt + before.n_tokens, "something was read again"


async def test_forking_in_a_new_process_equals_asking_there_at_once(
    pair: PairPaths, tmp_path: Path
) -> None:
    async with real_chat(pair, tmp_path / "whole", tmp_path / "log") as chat:
        await chat.ask("one")
        await chat.ask("other")
    library = Library(tmp_path / "left")
    async with real_chat(pair, library.root, tmp_path / "log") as chat:
        for text in ("one", "two", "three"):
            await chat.ask(text)
    (name,) = library.names()
    async with real_chat(pair, library.root, tmp_path / "log", name) as chat:
        commands.execute(chat.app.chat_screen, "fork", "1")
        await chat.ask("other")
    (whole_name,) = Library(tmp_path / "whole").names()
    whole, left = Library(tmp_path / "whole").read(whole_name).tree, library.read(name).tree
    assert tokens(left) == tokens(whole)
    assert [turn.question for turn in left.path("main")] == ["one", "two", "three"]
    forked = left.path()[1].usage
    first = left.path()[0].usage
    assert forked is not None
    assert first is not None
    assert forked.n_cached == first.n_prompt + first.n_tokens
