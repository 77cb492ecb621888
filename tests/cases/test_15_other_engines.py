"""A chat resumed under another engine: the reason said, the text kept, the state rebuilt."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ds4chat.store.library import Library
from ds4chat.store.tree import Tree
from ds4chat.tui.controller import Phase
from tests.cases.real_chat import RealChat, real_chat
from tests.cases.replies import VERY_SMALL
from tests.make_pair import PairPaths, make_pair

QUESTIONS = ("The quick brown", "fox jumps")
NEXT = "over the lazy dog"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairPaths:
    return make_pair(tmp_path_factory.mktemp("pair"), seed=51, **VERY_SMALL)


def pair_of(folder: Path, **changes: Any) -> PairPaths:
    return make_pair(folder, **{"seed": 51, **VERY_SMALL, **changes})


@pytest.fixture(scope="module")
def saved(pair: PairPaths, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a chat of two turns and its snapshots."""
    folder = tmp_path_factory.mktemp("saved")

    async def talk() -> None:
        async with real_chat(pair, folder) as chat:
            for text in QUESTIONS:
                await chat.ask(text)

    asyncio.run(talk())
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "copy")
    return tmp_path / "copy"


def name_in(folder: Path) -> str:
    (name,) = Library(folder / "sessions").names()
    return name


def tree_in(folder: Path) -> Tree:
    return Library(folder / "sessions").read(name_in(folder)).tree


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "main file": ({"seed": 52}, {}, "the model is"),
    "quantisation": ({"quant": "f16"}, {}, "the model is"),
    "cache options": ({}, {"kv_fp8": False}, "kv_fp8 is True in the snapshot, False here"),
    "no support file": ({}, {"support_path": ""}, "the support file is"),
}


async def resumed(chat: RealChat, folder: Path, words: str) -> None:
    """The snapshot is refused in words, the transcript shown, and a question answered."""
    await chat.until(lambda: "The KV snapshot is not used" in chat.words())
    assert words in chat.words()
    assert "transcript is kept" in chat.words()
    for question in QUESTIONS:
        assert question in chat.words()
    ids = await chat.ask(NEXT)
    turn = chat.chat.conversation.turns[-1]
    assert len(ids) == 12
    assert turn.usage is not None
    assert turn.usage.n_cached == 0, "it went on from a state of another engine"


@pytest.mark.parametrize(
    "what",
    [w if w == "main file" else pytest.param(w, marks=pytest.mark.slow) for w in OTHERS],
)
async def test_another_engine_reads_the_text_again(
    pair: PairPaths, folder: Path, tmp_path: Path, what: str
) -> None:
    made, load, words = OTHERS[what]
    other = pair_of(tmp_path / "other", **made) if made else pair
    before = [(turn.question, turn.answer_text) for turn in tree_in(folder).path()]
    async with real_chat(other, folder, resume=name_in(folder), **load) as chat:
        await resumed(chat, folder, words)
    after = tree_in(folder)
    assert [(t.question, t.answer_text) for t in after.path()[:2]] == before
    assert len(after.path()) == 3


@pytest.mark.slow
async def test_another_support_file_reads_the_text_again_and_says_the_same(
    pair: PairPaths, folder: Path, tmp_path: Path
) -> None:
    """The same model: the reply is that of the engine that wrote the chat, token for token."""
    other = pair_of(tmp_path / "other", n_stages=2, target_layers=(0, 1))
    name = name_in(folder)
    async with real_chat(pair, folder, resume=name, support_path=str(other.support)) as chat:
        await resumed(chat, folder, "the support file is")
        found = chat.chat.conversation.turns[-1].ids
        assert chat.chat.info is not None
        assert chat.chat.info.block_size > 0
    again = tmp_path / "again"
    async with real_chat(pair, again) as chat:
        for text in (*QUESTIONS, NEXT):
            wanted = await chat.ask(text)
    assert found == wanted


async def test_a_context_too_small_for_its_tokens(pair: PairPaths, folder: Path) -> None:
    """Nothing is cut off in silence: the chat says so and is whole when the room is there."""
    name = name_in(folder)
    ctx = min(record.n_tokens for record in tree_in(folder).snapshots.values()) - 1
    async with real_chat(pair, folder, resume=name, ctx=ctx) as chat:
        await chat.until(lambda: "The KV snapshot is not used" in chat.words())
        assert f"the context is {ctx}" in chat.words()
        await chat.ask(NEXT)
        assert chat.chat.conversation.turns[-1].ids == []
        assert "context" in chat.words().rsplit(NEXT, 1)[1]
    tree = tree_in(folder)
    assert [turn.question for turn in tree.path()[:2]] == list(QUESTIONS)
    async with real_chat(pair, folder, resume=name, ctx=512) as chat:
        await chat.until(lambda: "KV state restored" in chat.words())
        assert len(await chat.ask("and now?")) == 12


Damage = Callable[[Path], None]


def rewritten(**changes: object) -> Damage:
    def write(manifest: Path) -> None:
        body = json.loads(manifest.read_bytes())
        manifest.write_text(json.dumps({**body, **changes}))

    return write


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a later version": (rewritten(format=9), "format 9; this version of ds4chat reads"),
    "no manifest of ours": (lambda path: void(path.write_text("{}")), "damaged"),
    "cut": (lambda path: void(path.write_bytes(path.read_bytes()[:-9])), "damaged"),
}


def void(_: object) -> None:
    """Drop a result."""


@pytest.mark.parametrize(
    "what",
    [w if w == "a later version" else pytest.param(w, marks=pytest.mark.slow) for w in DAMAGES],
)
async def test_a_snapshot_of_another_version_or_damaged_is_read_again(
    pair: PairPaths, folder: Path, what: str
) -> None:
    damage, words = DAMAGES[what]
    for manifest in folder.rglob("snapshots/*.json"):
        damage(manifest)
    async with real_chat(pair, folder, resume=name_in(folder)) as chat:
        await resumed(chat, folder, words)


@pytest.mark.slow
async def test_another_model_opened_in_mid_chat_goes_on_by_reading(
    pair: PairPaths, folder: Path, tmp_path: Path
) -> None:
    """The same rule without leaving: what the lane holds is the other model's."""
    other = pair_of(tmp_path / "other", seed=52)
    name = name_in(folder)
    async with real_chat(pair, folder, resume=name) as chat:
        await chat.until(lambda: "KV state restored" in chat.words())
        chat.chat.load = replace(chat.chat.load, model_path=str(other.base))
        chat.chat.reload()
        await chat.until(lambda: chat.chat.phase is Phase.READY and not chat.desk.kv._restores)
        assert len(await chat.ask(NEXT)) == 12
        turn = chat.chat.conversation.turns[-1]
        assert turn.usage is not None
        assert turn.usage.n_cached == 0
        assert "are read as text" in chat.words()
