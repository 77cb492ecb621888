"""Windows of few rows: the caret and the line of keys are always seen."""

from __future__ import annotations

import pytest

from ds4chat.demo import Reply
from ds4chat.tui.stack_layout import fit
from ds4chat.tui.widgets.keybar import KeyBar
from tests.pilot.conftest import OpenChat

LONG = "\n".join(f"line {n}" for n in range(1, 41))


@pytest.mark.parametrize("size", [(80, 14), (80, 12), (80, 10), (40, 5), (20, 3), (8, 2)])
async def test_a_long_prompt_takes_what_the_window_leaves(
    open_chat: OpenChat, size: tuple[int, int]
) -> None:
    async with open_chat(Reply(answer="Yes."), size=size) as chat:
        await chat.paste(LONG)
        await chat.paste("typed here")
        keys, prompt = chat.screen.query_one(KeyBar).region, chat.prompt.region
        caret = chat.prompt.cursor_screen_offset
        assert (keys.bottom, keys.height) == (size[1], 1)
        assert prompt.contains(*caret)
        assert prompt.bottom <= keys.y
        assert chat.screen.max_scroll_y == 0


async def test_the_prompt_grows_again_with_the_window(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer="Yes."), size=(80, 8)) as chat:
        await chat.paste(LONG)
        low = chat.prompt.region.height
        await chat.pilot.resize_terminal(80, 24)
        await chat.until(lambda: chat.prompt.region.height == 10)
        assert low == 2


def test_the_least_needed_give_first() -> None:
    names = ["header", "body", "status", "prompt-row", "keys"]
    assert fit([1, 1, 5, 11, 1], names, 24) == [1, 3, 5, 11, 1]
    assert fit([1, 1, 5, 11, 1], names, 12) == [1, 3, 1, 6, 1]
    assert fit([1, 1, 5, 11, 1], names, 6) == [1, 1, 0, 3, 1]
    assert fit([1, 1, 5, 11, 1], names, 2) == [0, 0, 0, 1, 1]
    assert fit([1, 1, 5, 11, 1], names, 1) == [0, 0, 0, 1, 0]
