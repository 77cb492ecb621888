"""Chats that are kept: saved with every message, resumed, lost to nobody."""

from __future__ import annotations

import gc
from pathlib import Path

from ds4chat.demo import Reply, Script
from ds4chat.protocol.commands import RestoreSnapshot, SaveSnapshot, Submit
from ds4chat.protocol.events import RoundVerified, TokensCommitted
from ds4chat.protocol.types import Channel, FinishReason, Source
from ds4chat.tui.controller import Phase
from ds4chat.tui.widgets.transcript_rows import Row
from tests.pilot.conftest import OpenChat
from tests.pilot.keeping import LONG, SCRIPT, desk_of, kept, on_disk, saved


async def test_nothing_is_saved_before_the_first_message(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    root = tmp_path / "sessions"
    async with open_chat(options=kept(root)) as chat:
        assert not root.exists()
        await chat.send("/list")
        assert "no saved sessions" in chat.transcript()
        assert desk_of(chat).close() == ""
    assert not root.exists()


async def test_every_turn_is_saved_with_provenance_and_a_snapshot(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("Write quicksort!")
        await chat.ask("and again")
        name = await saved(chat)
        ours = chat.chat.conversation.turns
        saves = chat.engine.sent(SaveSnapshot)
        folder = str(tmp_path / name / "snapshots")
        assert [(s.folder, s.name) for s in saves] == [(folder, "t1"), (folder, "t2")]
    assert name.endswith("-write-quicksort")
    tree = on_disk(tmp_path, name)
    turns = tree.path()
    assert [t.question for t in turns] == ["Write quicksort!", "and again"]
    assert turns[0].answer_text == "First **answer**."
    assert [t.ids for t in turns] == [t.ids for t in ours]
    assert turns[0].usage == ours[0].usage
    assert any(isinstance(event, RoundVerified) for event in turns[0].events)
    assert {span.token.source for span in turns[0].spans()} >= {Source.ACCEPTED, Source.PLAIN}
    assert list(tree.snapshots) == ["t1", "t2"]
    assert tree.options is not None
    assert tree.options.model is not None
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


async def test_resume_redraws_all_and_continues_from_the_snapshot(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.ask("two")
        before = chat.transcript()
        ids = [turn.ids for turn in chat.chat.conversation.turns]
        n_held = sum(map(len, ids))
        name = await saved(chat)
    async with open_chat(script=SCRIPT) as chat:
        for text in ("one", "two", "three"):
            await chat.ask(text)
        whole = chat.chat.conversation.turns[-1]
    async with open_chat(script=SCRIPT, options=kept(tmp_path, name)) as chat:
        await chat.until(lambda: "KV state restored" in chat.transcript())
        assert chat.transcript().startswith(before)
        assert [turn.ids for turn in chat.chat.conversation.turns] == ids
        await chat.ask("three")
        turn = chat.chat.conversation.turns[-1]
        assert turn.ids == whole.ids
        assert turn.turn_id == 3
        assert turn.usage is not None
        assert whole.usage is not None
        assert turn.usage.n_cached == whole.usage.n_cached > n_held
        assert await saved(chat) == name
    assert len(on_disk(tmp_path, name).path()) == 3


async def test_the_kv_is_restored_before_a_queued_message_is_sent(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        name = await saved(chat)
    script = Script(replies=SCRIPT.replies, is_load_held=True)
    async with open_chat(script=script, options=kept(tmp_path, name), is_ready=False) as chat:
        await chat.phase(Phase.LOADING)
        await chat.send("two")
        chat.engine.send(Submit(request_id=-9, turn_id=99, messages=()))
        await chat.until(lambda: len(chat.chat.conversation.turns) == 2)
        kinds = [
            type(c) for c in chat.engine.commands if isinstance(c, RestoreSnapshot | Submit)
        ]
        assert kinds[-2:] == [RestoreSnapshot, Submit]
        await chat.until(lambda: not chat.chat.is_busy)
        await saved(chat)


async def test_without_its_snapshot_the_transcript_is_read_again(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        name = await saved(chat)
    (tmp_path / name / "snapshots" / "t1.json").write_text('{"links": []}')
    async with open_chat(script=SCRIPT, options=kept(tmp_path, name)) as chat:
        await chat.until(lambda: "KV snapshot is not used" in chat.transcript())
        await chat.ask("two")
        usage = chat.chat.conversation.turns[-1].usage
        assert usage is not None
        assert usage.n_cached == 0
        await saved(chat)


async def test_a_stopped_reply_is_kept(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(Reply(answer=LONG, holds=(3,)), options=kept(tmp_path)) as chat:
        await chat.send("go")
        await chat.steps(3)
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)
        text = chat.chat.conversation.turns[0].answer_text
        name = await saved(chat)
    turn = on_disk(tmp_path, name).path()[0]
    assert turn.reason is FinishReason.CANCELLED
    assert turn.answer_text == text != ""


async def test_a_dead_engine_leaves_its_partial_reply_and_the_chat_resumes(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    replies = (Reply(answer="Fine."), Reply(answer=LONG, crash_after=3))
    async with open_chat(*replies, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.send("two")
        await chat.phase(Phase.DEAD)
        partial = chat.chat.conversation.turns[1].answer_text
        name = await saved(chat)
    tree = on_disk(tmp_path, name)
    assert tree.path()[1].reason is FinishReason.ERROR
    assert tree.path()[1].answer_text == partial != ""
    async with open_chat(script=SCRIPT, options=kept(tmp_path, name)) as chat:
        await chat.until(lambda: "KV state restored" in chat.transcript())
        assert partial.split()[0] in chat.transcript()
        await chat.ask("three")
        messages = chat.engine.sent(Submit)[-1].messages
        assert [m.text for m in messages] == ["one", "Fine.", "two", partial, "three"]
        await saved(chat)


async def test_a_restarted_engine_gets_its_kv_state_back(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    replies = (Reply(answer="Fine."), Reply(answer=LONG, crash_after=3))
    async with open_chat(*replies, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.send("two")
        await chat.phase(Phase.DEAD)
        n_held = chat.chat.conversation.turns[0].usage
        await chat.press("f8")
        await chat.phase(Phase.READY)
        await chat.ask("three")
        usage = chat.chat.conversation.turns[-1].usage
        assert usage is not None
        assert n_held is not None
        assert usage.n_cached >= n_held.n_prompt + n_held.n_tokens
        await saved(chat)


async def test_a_killed_program_loses_nothing_that_was_shown(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    """What a killed program leaves: the transcript without the end of its last turn."""
    async with open_chat(Reply(answer=LONG, holds=(3,)), options=kept(tmp_path)) as chat:
        await chat.send("go")
        await chat.steps(3)
        await chat.until(lambda: desk_of(chat).session)
        session = desk_of(chat).session
        assert session is not None
        text = chat.chat.conversation.turns[0].answer_text
        assert session.flush()
        left = (session.folder / "transcript.jsonl").read_bytes()
        desk_of(chat).close()
    folder = tmp_path / "killed"
    folder.mkdir()
    (folder / "transcript.jsonl").write_bytes(left)
    async with open_chat(Reply(answer="On."), options=kept(tmp_path, "killed")) as chat:
        await chat.until(lambda: chat.chat.conversation.turns)
        assert chat.chat.conversation.turns[0].answer_text == text != ""
        await chat.ask("and?")
        await saved(chat)
    turns = on_disk(tmp_path, "killed").path()
    assert [turn.reason for turn in turns] == [FinishReason.ERROR, FinishReason.STOP]


async def test_quitting_in_mid_reply_keeps_the_partial_text(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(Reply(answer=LONG, holds=(3,)), options=kept(tmp_path)) as chat:
        await chat.send("go")
        await chat.steps(3)
        text = chat.chat.conversation.turns[0].answer_text
        name = desk_of(chat).close()
    turn = on_disk(tmp_path, name).path()[0]
    assert turn.answer_text == text
    assert turn.finished is not None
    assert "ended during this reply" in turn.finished.message


async def test_reasoning_is_saved_from_before_the_reply(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    reply = Reply(answer="Yes.", thinking="Let me see what this is about. " * 20)
    async with open_chat(reply, options=kept(tmp_path)) as chat:
        await chat.send("/think on")
        await chat.ask("one")
        assert chat.engine.sent(SaveSnapshot)[-1].before_reply
        await chat.send("/nothink")
        await chat.ask("two")
        assert not chat.engine.sent(SaveSnapshot)[-1].before_reply
        name = await saved(chat)
    resumed = open_chat(reply, options=kept(tmp_path, name), is_clock_stopped=True)
    async with resumed as chat:
        await chat.until(lambda: "KV state restored" in chat.transcript())
        events = desk_of(chat).tree.path()[0].events
        clocks = [
            event.at_s
            for event in events
            if isinstance(event, TokensCommitted) and event.channel is Channel.THINKING
        ]
        assert clocks[-1] - clocks[0] > 0.5
        assert f"thought {clocks[-1] - clocks[0]:.1f} s" in chat.transcript()
        await saved(chat)
    turn = on_disk(tmp_path, name).path()[0]
    assert "".join(s.text for s in turn.spans(Channel.THINKING)) == turn.reasoning_text != ""


async def test_the_title_follows_the_session(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        assert chat.screen.window_title() == "ds4chat – scripted"
        await chat.ask("one")
        await chat.until(lambda: desk_of(chat).session)
        name = await saved(chat)
        assert name
        await chat.send("/new")
        assert chat.screen.window_title() == "ds4chat – scripted"
    async with open_chat(script=SCRIPT, options=kept(tmp_path, name)) as chat:
        await chat.until(lambda: chat.chat.conversation.turns)
        assert chat.screen.window_title() == f"{name} – ds4chat"
        desk_of(chat).close()


async def test_what_was_resumed_is_kept_from_the_garbage_collector(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        assert any(isinstance(item, Row) for item in gc.get_objects())
        await chat.ask("two")
        desk_of(chat).redraw()
        assert not any(isinstance(item, Row) for item in gc.get_objects())
        await saved(chat)
