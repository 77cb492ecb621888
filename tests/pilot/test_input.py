"""What a person types: history over runs, and text that must not be lost."""

from __future__ import annotations

from pathlib import Path

from textual import events

from ds4chat.tui.options import ChatOptions
from ds4chat.tui.widgets.wrapped import PromptRows
from tests.pilot.conftest import OpenChat


async def test_history_is_searched_by_beginning_and_kept(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    options = ChatOptions(is_animated=False, state_dir=tmp_path)
    async with open_chat(options=options) as chat:
        for text in ("apple", "banana", "avocado"):
            await chat.ask(text)
    async with open_chat(options=options) as chat:
        await chat.press("a", "up")
        assert chat.prompt.text == "avocado"
        await chat.press("up")
        assert chat.prompt.text == "apple"
        await chat.press("down", "down")
        assert chat.prompt.text == "a"


async def test_keys_of_one_burst_keep_their_order(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"xyz")
        for key, typed in (("backspace", None), ("left", None), ("a", "a"), ("end", None)):
            chat.app.post_message(events.Key(key, typed))
        chat.app.post_message(events.Key("b", "b"))
        await chat.until(lambda: chat.prompt.text.endswith("b"))
        assert chat.prompt.text == "xayb"


async def test_the_rows_of_the_prompt_are_never_counted(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        for _ in range(2):  # the document from the start, and one that was loaded
            assert isinstance(chat.prompt.wrapped_document, PromptRows)
            await chat.paste("one\n" * 500 + "word " * 100)
            await chat.press("x", "ctrl+j", "y")
            document = chat.prompt.wrapped_document
            assert document.height == sum(map(len, document.lines))
            assert chat.prompt.virtual_size.height == document.height > 503
            chat.prompt.load("a\nb")
