"""Branches of a chat: fork, goto, undo, compact; nothing is ever lost."""

from __future__ import annotations

from pathlib import Path

from ds4chat.protocol.commands import RestoreSnapshot, Submit
from ds4chat.protocol.types import Role
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat
from tests.pilot.keeping import SCRIPT, desk_of, kept, on_disk, saved


async def test_fork_leaves_the_original_and_goto_returns(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        for text in ("one", "two", "three"):
            await chat.ask(text)
        await chat.until(lambda: len(desk_of(chat).tree.snapshots) == 3)
        await chat.send("/fork 1")
        assert [t.turn_id for t in chat.chat.conversation.turns] == [1]
        assert "you  two" not in chat.transcript()
        restore = chat.engine.sent(RestoreSnapshot)[-1]
        assert restore.names == ("t1",)
        await chat.ask("other")
        turn = chat.chat.conversation.turns[-1]
        assert turn.turn_id == 4
        first = chat.chat.conversation.turns[0].usage
        assert first is not None
        assert turn.usage is not None
        assert turn.usage.n_cached == first.n_prompt + first.n_tokens
        await chat.send("/branch side")
        await chat.send("/goto main")
        assert [t.question for t in chat.chat.conversation.turns] == ["one", "two", "three"]
        assert chat.engine.sent(RestoreSnapshot)[-1].names[0] == "t3"
        await chat.send("/branches")
        text = chat.transcript()
        assert "● main" in text
        assert "○ side after turn 1" in text
        name = await saved(chat)
    tree = on_disk(tmp_path, name)
    assert {b.name: [t.id for t in tree.path(b.name)] for b in tree.branches.values()} == {
        "main": [1, 2, 3], "side": [1, 4],
    }  # fmt: skip


async def test_esc_esc_marks_a_turn_and_f_forks_from_it(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        for text in ("one", "two"):
            await chat.ask(text)
        await chat.press("escape")
        assert chat.screen.transcript.marked_turn is None
        await chat.press("escape", "alt+up", "f")
        assert [t.question for t in chat.chat.conversation.turns] == ["one"]
        assert chat.prompt.has_focus
        await chat.ask("other")
        name = await saved(chat)
    tree = on_disk(tmp_path, name)
    assert [t.question for t in tree.path()] == ["one", "other"]
    assert [t.question for t in tree.path("main")] == ["one", "two"]


async def test_what_compact_drops_is_shown_and_not_sent_after_a_resume(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        for text in ("one", "two"):
            await chat.ask(text)
        await chat.send("/compact 1")
        await chat.ask("three")
        name = await saved(chat)
    async with open_chat(script=SCRIPT, options=kept(tmp_path, name)) as chat:
        await chat.until(lambda: "KV state restored" in chat.transcript())
        assert "you  one" in chat.transcript()
        await chat.ask("four")
        asked = [m.text for m in chat.engine.sent(Submit)[-1].messages if m.role is Role.USER]
        assert asked == ["two", "three", "four"]
        await chat.send("/compact undo")
        await chat.ask("five")
        await saved(chat)
    tree = on_disk(tmp_path, name)
    assert [t.question for t in tree.path()] == ["one", "two", "three", "four", "five"]
    assert [b.why for b in tree.branches.values()] == ["", "compact", "compact"]


async def test_undoing_compact_goes_on_from_the_snapshot_before_it(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        for text in ("one " * 200, "two"):
            await chat.ask(text)
        n_whole = chat.chat.n_context
        await chat.send("/compact 1")
        await chat.until(lambda: "will not be sent" in chat.transcript())
        assert 0 < chat.chat.n_context < 100 < n_whole
        assert f"ctx {chat.chat.n_context}/" in chat.picture()
        await chat.ask("three")
        await chat.until(lambda: len(desk_of(chat).tree.snapshots) == 3)
        n_compacted = chat.chat.n_context
        await chat.send("/compact undo")
        restore = chat.engine.sent(RestoreSnapshot)[-1]
        assert [m.text for m in restore.messages if m.role is Role.USER][-2:] == [
            "two",
            "three",
        ]
        assert len(restore.messages) == 6
        assert restore.names == ("t2", "t3")  # the one before it holds more
        await chat.until(lambda: "will be sent again." in chat.transcript())
        words = chat.transcript().partition("will be sent again.")[2]
        assert "A KV snapshot holds" in words
        assert chat.chat.n_context > n_whole > n_compacted
        assert f"ctx {chat.chat.n_context}/" in chat.picture()
        await chat.ask("four")
        usage = chat.chat.conversation.turns[-1].usage
        assert usage is not None
        assert usage.n_cached > 200


async def test_undo_is_recorded_and_the_turn_can_be_brought_back(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.ask("two")
        n_context = chat.chat.n_context
        await chat.send("/undo")
        await chat.until(lambda: len(chat.chat.conversation.turns) == 1)
        assert chat.prompt.text == "two"
        assert 0 < chat.chat.n_context < n_context
        await chat.press("ctrl+a", "delete")
        chat.prompt.text = ""
        await chat.send("/goto 2")
        assert chat.chat.n_context == n_context
        assert [t.question for t in chat.chat.conversation.turns] == ["one", "two"]
        name = await saved(chat)
    assert [t.id for t in on_disk(tmp_path, name).path("main")] == [1]


async def test_each_session_counts_its_turns_from_1(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.ask("two")
        first = await saved_name(chat)
        await chat.press("ctrl+n")
        await chat.ask("three")
        assert [turn.id for turn in desk_of(chat).tree.path()] == [1]
        await chat.send("/branches")
        assert "1  three" in chat.transcript()
        await chat.send("/fork 1")
        assert "goes on after turn 1" in chat.transcript()
        await chat.send(f"/resume {first}")
        await chat.until(lambda: len(chat.chat.conversation.turns) == 2)
        await chat.ask("four")
        name = await saved(chat)
    assert [(turn.id, turn.question) for turn in on_disk(tmp_path, name).path()] == [
        (1, "one"),
        (2, "two"),
        (3, "four"),
    ]


async def saved_name(chat: Chat) -> str:
    """The name of the chat's session, once it is made."""
    await chat.until(lambda: desk_of(chat).session)
    session = desk_of(chat).session
    assert session is not None
    return session.name
