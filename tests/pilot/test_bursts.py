"""Keys that come faster than screens open and close."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat
from tests.pilot.keeping import SCRIPT, desk_of, kept, saved


async def burst(chat: Chat, key: str) -> None:
    """Press a key three times before the first is heard, as one that is held down."""
    for _ in range(3):
        chat.app.post_message(events.Key(key, None))
    await chat.pilot.pause()
    await chat.pilot.pause()


async def test_enter_held_down_opens_a_session_once(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.press("ctrl+n")
        await chat.ask("two")
        await chat.press("ctrl+r", "down")
        await burst(chat, "enter")
        assert chat.app.screen is chat.screen
        assert [turn.question for turn in chat.chat.conversation.turns] == ["one"]
        assert "is the one that you are in" not in " ".join(chat.transcript().split())
        await chat.until(lambda: not desk_of(chat).kv._left)
        await saved(chat)


async def test_enter_held_down_in_the_palette_runs_a_command_once(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+p", *"what is loaded")
        await chat.until(lambda: "/model [FILE]  what is loaded" in chat.picture())
        await burst(chat, "enter")
        await chat.until(lambda: chat.app.screen is chat.screen)
        await chat.until(lambda: "Model: scripted" in chat.transcript())
        assert chat.transcript().count("Model: scripted") == 1


@pytest.mark.parametrize("key", ["f1", "f2", "ctrl+r", "ctrl+p"])
async def test_a_key_held_down_leaves_the_chat(
    open_chat: OpenChat, tmp_path: Path, key: str
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await burst(chat, key)
        await burst(chat, "escape")
        assert chat.app.screen is chat.screen
        await chat.ask("two")
        await saved(chat)
