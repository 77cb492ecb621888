"""Pastes and rapid keys, idle and in mid reply: one draft, and nothing is sent by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual import events

from ds4chat.demo import Reply, Script
from ds4chat.protocol.commands import Submit
from ds4chat.tui import commands
from ds4chat.tui.controller import Phase
from ds4chat.tui.screens.chat import ChatScreen
from ds4chat.tui.terminal_input import PASTE_END, PASTE_START, ChatParser
from tests.pilot.driver import Chat, run_chat
from tests.pilot.keeping import LONG

LINES = [f"line {n} [/red] /quit" for n in range(20)]
REPLIES = (Reply(answer=LONG, holds=(2,)), *[Reply(answer="Yes.")] * 30)
CTRL_C, CTRL_Q = "\x03", "\x11"


class Keyboard:
    """Bytes of a terminal, read as the program reads them."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.parser = ChatParser()

    async def put(self, *pieces: str) -> None:
        for piece in pieces:
            for event in self.parser.feed(piece):
                if isinstance(event, events.Key | events.Paste):
                    event.set_sender(self.chat.app)
                    self.chat.app.post_message(event)
        await self.chat.pilot.pause()


def pasted(text: str) -> str:
    return PASTE_START + text + PASTE_END


def questions(chat: Chat) -> list[str]:
    return [submit.messages[-1].text for submit in chat.engine.sent(Submit)]


@asynccontextmanager
async def typing(*, is_busy: bool) -> AsyncIterator[tuple[Chat, Keyboard]]:
    async with run_chat(*REPLIES) as chat:
        if is_busy:
            await chat.send("first")
            await chat.steps(2)
        yield chat, Keyboard(chat)


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("end", ["\r", pytest.param("\r\n", marks=pytest.mark.slow)])
async def test_twenty_lines_are_one_draft(end: str, is_busy: bool) -> None:
    async with typing(is_busy=is_busy) as (chat, keyboard):
        await keyboard.put(pasted(end.join(LINES) + end))
        assert chat.prompt.text == "\n".join(LINES) + "\n"
        assert len(questions(chat)) == is_busy
        assert chat.chat.conversation.queue == []
        await keyboard.put("\r")
        if is_busy:
            assert chat.chat.conversation.queue == ["\n".join(LINES)]
            await chat.press("f3")  # any command lets the script go on
        await chat.until(lambda: len(questions(chat)) == is_busy + 1)
        assert questions(chat)[-1] == "\n".join(LINES)


async def test_rapid_keys_while_idle_lose_nothing_and_help_states_the_limit() -> None:
    """Without marks a line end is the Enter key: each line is a message, in order."""
    async with run_chat(*[Reply(answer="Yes.")] * 30) as chat:
        await Keyboard(chat).put("\r".join(LINES) + "\rrest")
        await chat.until(lambda: len(questions(chat)) == len(LINES))
        assert questions(chat) == LINES
        assert chat.prompt.text == "rest"
        commands.execute(chat.screen, "help", "")
        await chat.until(lambda: not isinstance(chat.app.screen, ChatScreen))
        text = " ".join(" ".join(str(w.render()) for w in chat.app.screen.query("*")).split())
        assert "where the terminal marks pastes (bracketed paste)" in text


async def test_rapid_keys_in_mid_reply_all_wait_and_come_back_as_one_draft() -> None:
    async with typing(is_busy=True) as (chat, keyboard):
        await keyboard.put("\r".join(LINES) + "\rrest")
        assert chat.chat.conversation.queue == LINES
        assert questions(chat) == ["first"]
        await keyboard.put("\x1b")
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.prompt.text == "\n\n".join(LINES) + "\nrest"
        assert questions(chat) == ["first"]


@pytest.mark.parametrize("is_busy", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_a_paste_in_pieces_with_keys_around_it(is_busy: bool) -> None:
    async with typing(is_busy=is_busy) as (chat, keyboard):
        raw = "ab" + pasted("\r".join(LINES)) + "cd"
        await keyboard.put(*[raw[at : at + 7] for at in range(0, len(raw), 7)])
        assert chat.prompt.text == "ab" + "\n".join(LINES) + "cd"
        assert len(questions(chat)) == is_busy


HOSTILE = (
    "\x1b[201\r~", "\x1b\r\x1b\r", "\x1bOP\x1b[A\r", "a\x1b[20", "\x03\r\x11\r\x04",
    "\x85\u2028x", PASTE_START + "\r",
)  # fmt: skip


@pytest.mark.parametrize(
    "text", [*HOSTILE[:2], *(pytest.param(t, marks=pytest.mark.slow) for t in HOSTILE[2:])]
)
async def test_what_a_paste_holds_is_no_key(text: str) -> None:
    async with typing(is_busy=False) as (chat, keyboard):
        await keyboard.put(pasted(f"one\r{text}\rtwo"))
        assert chat.prompt.text.startswith("one\n")
        assert chat.prompt.text.endswith("\ntwo")
        assert questions(chat) == []
        assert chat.app._exit is False


async def test_a_paste_before_the_model_is_there_is_a_draft_too() -> None:
    script = Script(replies=(Reply(answer="Yes."),), is_load_held=True)
    async with run_chat(script=script, is_ready=False) as chat:
        await chat.phase(Phase.LOADING)
        await Keyboard(chat).put(pasted("\r".join(LINES)))
        assert chat.prompt.text == "\n".join(LINES)
        assert chat.chat.conversation.queue == []


@pytest.mark.parametrize("name", ["settings", "help"])
async def test_a_paste_onto_another_screen_goes_nowhere(name: str) -> None:
    """Its letters are no keys there, and do not wait in the prompt behind."""
    async with typing(is_busy=False) as (chat, keyboard):
        commands.execute(chat.screen, name, "")
        await chat.until(lambda: not isinstance(chat.app.screen, ChatScreen))
        screen = chat.app.screen
        await keyboard.put(pasted("q\r\x1b\r" + "\r".join(LINES)))
        assert chat.app.screen is screen
        assert questions(chat) == []
        assert chat.prompt.text == ""


@pytest.mark.parametrize("key", [CTRL_C, CTRL_Q])
async def test_a_paste_whose_end_was_lost_leaves_a_way_out(key: str) -> None:
    """A connection that broke in mid paste: every key would be swallowed as text for ever."""
    async with typing(is_busy=False) as (chat, keyboard):
        await keyboard.put(PASTE_START + "\r".join(LINES), "typed\r", "\x1b")
        assert questions(chat) == []
        await keyboard.put(key)
        assert chat.prompt.text.startswith("\n".join(LINES) + "typed")
        if key == CTRL_Q:
            await chat.until(lambda: chat.app._exit)
        else:
            await keyboard.put("x")
            assert chat.prompt.text.endswith("x")
            assert chat.app._exit is False
