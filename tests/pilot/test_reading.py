"""Reading a chat: search, marked turns, tokens and their rounds, ghosts, copying."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ds4chat.demo import Reply
from ds4chat.protocol.commands import Submit
from ds4chat.protocol.types import FinishReason
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens.round import RoundScreen
from ds4chat.tui.widgets.search_bar import SearchBar
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4
CODE = "Look:\n\n```python\nprint('[/red]')\n```\n"


async def test_search_finds_as_one_types_and_closes(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer="The **needle** is here.\n\nA Needle.")) as chat:
        await chat.ask("where is the needle?")
        await chat.press("ctrl+f")
        await chat.press(*"needle")
        await chat.until(lambda: "1 of 3 · Enter next" in chat.picture())
        await chat.press("enter", "enter")
        await chat.until(lambda: "3 of 3" in chat.picture())
        await chat.press("up")
        await chat.until(lambda: "2 of 3" in chat.picture())
        await chat.press("x")
        await chat.until(lambda: "nothing found" in chat.picture())
        await chat.press("escape")
        assert not chat.screen.query_one(SearchBar).is_shown
        assert chat.prompt.has_focus
        await chat.send("/search here")
        await chat.until(lambda: "1 of 2" in chat.picture())
        await chat.press("ctrl+f")
        assert chat.prompt.has_focus


async def test_a_hostile_paste_into_the_search_line_is_harmless(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+f")
        await chat.paste("\x9b2J[/red]\x1b[31m\nsecond")
        picture = chat.picture()
        assert "\ufffd2J[/red]␛[31m" in picture
        assert "second" not in picture


async def three_turns(chat: Chat) -> None:
    for question in ("first", "second", "third"):
        await chat.ask(question)


async def test_keys_on_a_marked_turn(open_chat: OpenChat) -> None:
    replies = (Reply(answer="One."), Reply(answer=CODE), Reply(answer="Three."))
    async with open_chat(*replies, size=(120, 40)) as chat:
        await chat.press("alt+up")
        assert "There is no turn yet" in chat.hints()
        await three_turns(chat)
        await chat.press("alt+up", "alt+up")
        assert "you▌ second" in chat.picture()
        assert "r retry" in chat.picture().splitlines()[-1]
        await chat.press("c")
        assert chat.app.clipboard == CODE
        await chat.press("y")
        assert chat.app.clipboard == "print('[/red]')\n"
        await chat.press("alt+up", "alt+up", "y")
        assert "you▌ first" in chat.picture()
        assert "This answer has no code block" in chat.hints()
        await chat.press("alt+down", "alt+down", "alt+down")
        assert "▌" not in chat.picture()
        assert chat.prompt.has_focus


@pytest.mark.parametrize("key", ["z", "escape"])
async def test_other_keys_leave_the_turn(open_chat: OpenChat, key: str) -> None:
    async with open_chat() as chat:
        await chat.ask("first")
        await chat.press("alt+up", key)
        assert "▌" not in chat.picture()
        assert chat.prompt.has_focus
        assert chat.prompt.text == ("z" if key == "z" else "")


async def test_a_paste_on_a_marked_turn_goes_to_the_prompt(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("first")
        await chat.press("alt+up")
        await chat.paste("two\nlines")
        await chat.until(lambda: chat.prompt.text == "two\nlines")


async def test_edit_and_resend_replaces_the_turn_and_what_follows(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer="Yes.")) as chat:
        await three_turns(chat)
        await chat.press("alt+up", "alt+up", "e")
        assert chat.prompt.text == "second"
        assert "editing: Enter replaces this turn and the 1 after it" in chat.picture()
        assert len(chat.chat.conversation.turns) == 3
        await chat.press("escape")
        assert "editing:" not in chat.picture()
        await chat.press("alt+up", "alt+up", "e", "!", "enter")
        await chat.until(lambda: len(chat.engine.sent(Submit)) == 5 - 1)
        await chat.until(lambda: not chat.chat.is_busy)
        questions = [turn.question for turn in chat.chat.conversation.turns]
        assert questions[0] == "first"
        assert questions[1].startswith("second")
        assert len(questions) == 2
        assert "third" not in chat.transcript()
        assert [m.text for m in chat.engine.sent(Submit)[-1].messages][:2] == ["first", "Yes."]


async def test_leaving_an_edit_empties_the_prompt_but_keeps_what_was_typed(
    open_chat: OpenChat,
) -> None:
    async with open_chat() as chat:
        await chat.ask("first")
        await chat.press("alt+up", "e")
        assert chat.prompt.text == "first"
        await chat.press("escape")
        assert chat.prompt.text == ""
        await chat.press("alt+up", "e", "!", "escape")
        assert chat.prompt.text == "first!"
        assert chat.chat.editing is None


async def test_editing_in_mid_reply_stops_it_first(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,)), Reply(answer="Yes.")) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.press("alt+up", "e", "1", "enter")
        await chat.until(lambda: len(chat.engine.sent(Submit)) == 2)
        assert [m.text for m in chat.engine.sent(Submit)[1].messages] == ["go1"]
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)


async def test_retry_of_an_earlier_turn_asks_first(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await three_turns(chat)
        await chat.press("alt+up", "alt+up", "r")
        assert any("r again" in hint for hint in chat.hints())
        assert len(chat.engine.sent(Submit)) == 3
        await chat.press("r")
        await chat.until(lambda: len(chat.engine.sent(Submit)) == 4)
        await chat.until(lambda: not chat.chat.is_busy)
        assert [t.question for t in chat.chat.conversation.turns] == ["first", "second"]
        await chat.press("alt+up", "r")
        await chat.until(lambda: len(chat.engine.sent(Submit)) == 5)


async def test_undo_takes_the_turn_off_the_screen(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("first")
        await chat.ask("second")
        await chat.send("/undo")
        assert "you  first" in chat.transcript()
        assert "you  second" not in chat.transcript()


async def test_the_rounds_of_a_turn_by_key(open_chat: OpenChat) -> None:
    reply = Reply(answer="one two three four five six seven eight nine", accepts=(2,))
    async with open_chat(reply, size=(100, 30)) as chat:
        await chat.ask("go")
        await chat.press("alt+up", "enter")
        assert isinstance(chat.app.screen, RoundScreen)
        assert "not drafted" in chat.picture()
        await chat.press("right")
        picture = chat.picture()
        turn = chat.chat.conversation.turns[0]
        event = turn.rounds[1]
        assert f"round 1 · 2 of {len(event.proposal_ids)} accepted" in picture
        assert f"1  {event.confidences[0]:.2f}  accepted" in picture
        assert f"3  {event.confidences[2]:.2f}  wrong" in picture
        assert f"4  {event.confidences[3]:.2f}  not reached" in picture
        assert "then the target's own   ' four'" in picture
        assert "ms · verify" in picture
        assert "accepted: drafted, and the target agreed · place 1" in picture
        await chat.press("right", "right")
        assert "fallback: the target's own token where the draft was wrong" in chat.picture()
        assert "round 1 · 2 of" in chat.picture()
        await chat.press("down")
        assert "round 2 · 2 of" in chat.picture()
        await chat.press("up", "left", "escape")
        assert chat.app.screen_stack[-1] is chat.screen


async def test_a_click_shows_the_tokens_round(open_chat: OpenChat) -> None:
    async with open_chat(
        Reply(answer="[/red] two three", accepts=(5,)), size=(100, 30)
    ) as chat:
        await chat.ask("go")
        await chat.pilot.click("#transcript", offset=(8, 2))
        await chat.until(lambda: isinstance(chat.app.screen, RoundScreen))
        assert "· id " in chat.picture()


async def test_ghosts_by_command_and_key(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, accepts=(2,)), Reply(answer="Yes.")) as chat:
        await chat.send("/ghosts")
        assert "There is no reply yet" in chat.hints()
        await chat.ask("go")
        before = chat.transcript()
        ghost = chat.chat.conversation.turns[0].rounds[1].proposal_texts[2]
        await chat.send("/ghosts")
        assert ghost.strip() in chat.transcript()
        assert len(chat.transcript()) > len(before)
        await chat.send("/ghosts")
        assert chat.transcript() == before
        await chat.press("alt+up", "g")
        assert len(chat.transcript()) > len(before)
        assert chat.chat.conversation.turns[0].answer_text == LONG


def ghosts_in(chat: Chat) -> int:
    rounds = chat.chat.conversation.turns[0].rounds.values()
    texts = ["".join(event.proposal_texts[2:]).strip() for event in rounds]
    shown = " ".join(chat.transcript().split())
    return sum(" ".join(text.split()) in shown for text in texts if text)


async def test_ghosts_of_a_running_reply_are_shown_as_they_come(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, accepts=(2,), holds=(1, 6))) as chat:
        await chat.send("go")
        await chat.steps(1)
        rounds = chat.chat.conversation.turns[0].rounds
        await chat.send("/ghosts")
        await chat.until(lambda: rounds[1].proposal_texts[2].strip() in chat.transcript())
        chat.chat.set_spec(chat.chat.spec)  # any command lets the engine go on
        await chat.steps(6)
        assert chat.chat.is_busy
        await chat.until(lambda: ghosts_in(chat) >= 4)
        chat.chat.set_spec(chat.chat.spec)  # any command lets the engine go on
        await chat.until(lambda: not chat.chat.is_busy)
        shown = chat.transcript()
        await chat.send("/ghosts")
        await chat.send("/ghosts")
        assert chat.transcript() == shown


async def test_a_plain_reply_says_why_it_has_no_ghosts(open_chat: OpenChat) -> None:
    replies = (Reply(answer="Yes."), Reply(answer=LONG, accepts=(5,)))
    async with open_chat(*replies) as chat:
        await chat.press("f3")
        await chat.ask("go")
        await chat.send("/ghosts")
        assert "Nothing was drafted in this reply; speculation is off (F3)" in chat.hints()
        await chat.press("f3")
        await chat.ask("go")
        await chat.send("/ghosts")
        assert any("was rejected: all" in hint for hint in chat.hints())


async def test_what_is_copied_is_also_in_a_private_file(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    options = ChatOptions(is_animated=False, state_dir=tmp_path)
    async with open_chat(
        Reply(answer="Answer \ud800."), options=options, size=(120, 40)
    ) as chat:
        await chat.ask("go")
        await chat.send("/copy")
        path = tmp_path / "copied.txt"
        assert path.read_bytes().startswith(b"Answer ?.")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert any(str(path) in hint for hint in chat.hints())


async def test_esc_stops_before_it_leaves_a_turn(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(2,))) as chat:
        await chat.send("go")
        await chat.steps(2)
        await chat.press("alt+up", "escape")
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.chat.conversation.turns[0].reason is FinishReason.CANCELLED
        assert "▌" in chat.picture()
