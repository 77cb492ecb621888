"""The list of commands above the prompt: walked by Up and Down, taken by Tab or Enter."""

from __future__ import annotations

import pytest

from ds4chat.demo import Reply
from ds4chat.tui.commands import COMMANDS
from ds4chat.tui.screens.help import HelpScreen
from ds4chat.tui.widgets.completion import CompletionList
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat

LONG = "Some words that fill a few rounds, and then some more of them. " * 40


def marked(chat: Chat) -> str:
    """The marked row's command; empty if none is."""
    rows = [line.strip() for line in chat.picture().splitlines()]
    found = [row for row in rows if row.startswith("> /") and row.endswith("   Enter")]
    return found[0].removeprefix("> ").split("  ")[0] if found else ""


def is_listed(chat: Chat) -> bool:
    return chat.screen.query_one(CompletionList).region.height > 0


async def test_down_and_up_walk_the_list_round(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("/")
        assert (is_listed(chat), marked(chat)) == (True, "")
        await chat.press("down")
        assert marked(chat) == "/help"
        await chat.press("down", "down")
        assert marked(chat) == "/quit"
        assert f"  3 of {len(COMMANDS)}" in chat.picture()
        await chat.press("up", "up", "up")
        assert marked(chat) == "/takeover"
        await chat.press("down")
        assert marked(chat) == "/help"
        assert chat.prompt.text == "/"


async def test_enter_runs_what_wants_no_words(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("/", "down", "enter")
        await chat.until(lambda: isinstance(chat.app.screen, HelpScreen))
        assert chat.prompt.text == ""
        await chat.press("escape", "up")
        assert chat.prompt.text == "/help"


async def test_enter_puts_what_wants_words_into_the_prompt(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"/spe", "down", "enter")
        assert chat.prompt.text == "/spec "
        assert (is_listed(chat), marked(chat)) == (True, "")
        await chat.press("down", "down", "enter")
        assert chat.prompt.text == ""
        assert not chat.chat.spec.enabled


async def test_enter_runs_what_may_do_without_words(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"/mod", "down", "enter")
        assert "Model: scripted" in chat.transcript()
        await chat.press(*"/mod", "down", "tab")
        assert chat.prompt.text == "/model "


async def test_keys_in_one_burst_are_taken_in_their_order(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.pilot.press(*"/spe", "down", "enter", "down", "down", "enter")
        await chat.until(lambda: not chat.chat.spec.enabled)


async def test_tab_takes_the_marked_row_and_runs_nothing(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"/st", "down", "down", "tab")
        assert chat.prompt.text == "/stats"
        assert chat.transcript() == ""


async def test_enter_without_a_mark_sends_what_was_typed(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"/spec ", "enter")
        assert "Speculation" in chat.transcript()
        assert chat.chat.spec.enabled


async def test_typing_goes_on_behind_a_mark(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("/", "down", "s")
        assert (chat.prompt.text, marked(chat)) == ("/s", "")


async def test_escape_closes_the_list_and_up_recalls_again(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("hello")
        await chat.send("/stats")
        await chat.press("/", "down", "escape")
        assert not is_listed(chat)
        await chat.press("up")
        assert chat.prompt.text == "/stats"
        await chat.press("down", "s")
        assert chat.prompt.text == "/s"
        assert is_listed(chat)


async def test_escape_that_closes_the_list_is_not_half_a_rewind(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("hello")
        await chat.press("/", "escape", "escape")
        assert chat.prompt.has_focus


async def test_escape_stops_a_reply_first(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.press("/", "escape")
        await chat.until(lambda: not chat.chat.is_busy)
        assert is_listed(chat)


async def test_history_with_commands_is_walked_through(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        for text in ("first", "/why", "/model", "last"):
            await chat.send(text)
            await chat.until(lambda: not chat.chat.is_busy)
        for text in ("last", "/model", "/why", "first"):
            await chat.press("up")
            assert (chat.prompt.text, is_listed(chat)) == (text, False)
        for text in ("/why", "/model", "last", ""):
            await chat.press("down")
            assert chat.prompt.text == text


async def test_a_whole_command_alone_recalls_as_before(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.send("/temp 0.5")
        await chat.press(*"/temp", "up")
        assert chat.prompt.text == "/temp 0.5"


async def test_lines_are_walked_where_there_is_no_list(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"/s", "ctrl+j", "b", "up")
        assert chat.prompt.cursor_location == (0, 1)
        await chat.press("down")
        assert chat.prompt.cursor_location == (1, 1)
        assert chat.prompt.text == "/s\nb"


@pytest.mark.parametrize("size", [(80, 14), (80, 6), (80, 3)])
async def test_low_windows_show_the_marked_row(
    open_chat: OpenChat, size: tuple[int, int]
) -> None:
    async with open_chat(size=size) as chat:
        await chat.press("/")
        for command in list(COMMANDS.values())[:5]:
            await chat.press("down")
            assert marked(chat) == command.usage
            lines = chat.picture().splitlines()
            assert lines[-2].startswith("> /")  # the prompt
            assert "quit" in lines[-1]


async def test_what_cannot_be_seen_is_not_walked(open_chat: OpenChat) -> None:
    async with open_chat(size=(80, 24)) as chat:
        await chat.send("/why")
        await chat.press("/")
        assert is_listed(chat)
        await chat.pilot.resize_terminal(80, 2)
        await chat.until(lambda: not is_listed(chat))
        await chat.press("up")
        assert chat.prompt.text == "/why"


async def test_a_narrow_window_cuts_rows_and_does_not_wrap_them(open_chat: OpenChat) -> None:
    async with open_chat(size=(20, 24)) as chat:
        await chat.press(*"/comp")
        assert chat.screen.query_one(CompletionList).region.height == 1
