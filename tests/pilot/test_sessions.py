"""Chats that are kept: saved with every message, resumed, forked, lost to nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.demo.replay import ReplayEngine
from ds4chat.errors import SessionFileError
from ds4chat.protocol.commands import Load, RestoreSnapshot, SaveSnapshot, Submit
from ds4chat.protocol.events import RoundVerified, TokensCommitted
from ds4chat.protocol.types import Channel, FinishReason, Role, Sampling, Source
from ds4chat.store import files
from ds4chat.store.library import Library
from ds4chat.store.tree import Tree
from ds4chat.tui import sessions_desk
from ds4chat.tui.app import Ds4ChatApp
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens.sessions import SessionsScreen
from ds4chat.tui.sessions_desk import SessionDesk
from ds4chat.tui.sessions_hook import SessionsPlan
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4
SCRIPT = Script(
    replies=(Reply(answer="First **answer**."), Reply(answer="Second."), Reply(answer="Third."))
)


def kept(root: Path, resume: str = "", **rest: object) -> ChatOptions:
    plan = SessionsPlan(root=root, is_usual=False, resume=resume)
    return ChatOptions(is_animated=False, sessions=plan, **rest)  # type: ignore[arg-type]


def desk_of(chat: Chat) -> SessionDesk:
    desk = chat.screen.sessions
    assert desk is not None
    return desk


async def saved(chat: Chat) -> str:
    """Wait for the last snapshot, end the session, return its name."""
    desk = desk_of(chat)
    await chat.until(lambda: desk.session)
    session = desk.session
    assert session is not None
    folder = str(session.snapshots_dir)
    n_asked = sum(command.folder == folder for command in chat.engine.sent(SaveSnapshot))
    await chat.until(lambda: len(session.tree.snapshots) >= n_asked)
    return desk.close()


def on_disk(root: Path, name: str) -> Tree:
    return Library(root).read(name).tree


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


async def test_undo_is_recorded_and_the_turn_can_be_brought_back(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.ask("two")
        await chat.send("/undo")
        await chat.until(lambda: len(chat.chat.conversation.turns) == 1)
        assert chat.prompt.text == "two"
        await chat.press("ctrl+a", "delete")
        chat.prompt.text = ""
        await chat.send("/goto 2")
        assert [t.question for t in chat.chat.conversation.turns] == ["one", "two"]
        name = await saved(chat)
    assert [t.id for t in on_disk(tmp_path, name).path("main")] == [1]


async def test_a_second_window_is_read_only_until_it_takes_over(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as first:
        await first.ask("one")
        await first.until(lambda: desk_of(first).session)
        session = desk_of(first).session
        assert session is not None
        await first.until(lambda: session.tree.snapshots)
        session.flush()
        async with open_chat(script=SCRIPT, options=kept(tmp_path, session.name)) as second:
            await second.until(lambda: "read-only here" in second.transcript())
            assert f"process {os.getpid()}" in second.transcript().replace("\n", " ")
            assert "First answer" in second.transcript()
            await second.send("two")
            assert second.prompt.text == "two"
            assert not second.engine.sent(Submit)
            second.prompt.text = ""
            await second.send("/takeover")
            await second.ask("two")
            assert await saved(second) == session.name
        await first.ask("mine")  # one process: the claim on the lock tells no other
        await first.until(lambda: session.is_read_only)
        words = " ".join(first.transcript().split())
        assert words.count("another window has taken this session over") == 1
        assert "was not changed" not in words
        await first.send("more")
        assert first.prompt.text == "more"
        desk_of(first).close()
    assert [t.question for t in on_disk(tmp_path, session.name).path()] == ["one", "two"]


async def test_settings_of_the_session_come_back_and_are_said(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    options = kept(tmp_path, sampling=Sampling(temperature=0.8, seed=3), system="Be brief.")
    async with open_chat(script=SCRIPT, options=options) as chat:
        await chat.ask("one")
        name = await saved(chat)
    async with open_chat(script=SCRIPT, options=kept(tmp_path, name)) as chat:
        await chat.until(lambda: "KV state restored" in chat.transcript())
        assert chat.chat.sampling == Sampling(temperature=0.8, seed=3)
        assert chat.chat.conversation.system == "Be brief."
        assert "temp: 0.8 as in the session" in chat.transcript()
        desk_of(chat).close()


async def test_ids_of_another_model_are_not_sent(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        name = await saved(chat)
    other = replace(SCRIPT, info=replace(SCRIPT.info, name="another"))
    async with open_chat(script=other, options=kept(tmp_path, name)) as chat:
        await chat.until(lambda: chat.chat.conversation.turns)
        await chat.ask("two")
        reply = chat.engine.sent(Submit)[-1].messages[1]
        assert (reply.text, reply.ids) == ("First **answer**.", ())
        assert "are read as text" in chat.transcript()
        assert f"model: {SCRIPT.info.name} then, another now" in chat.transcript()
        await saved(chat)
    assert on_disk(tmp_path, name).turns[1].ids


async def test_a_full_disk_is_told_once_and_the_chat_goes_on(
    open_chat: OpenChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        real = files.FileOps.write

        def refuse(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files.FileOps, "write", refuse)
        await chat.ask("two")
        await chat.until(lambda: "cannot be saved" in chat.transcript())
        await chat.ask("three")
        assert chat.transcript().count("cannot be saved") == 1
        monkeypatch.setattr(files.FileOps, "write", real)
        name = await saved(chat)
    assert len(on_disk(tmp_path, name).path()) == 3


async def test_a_folder_that_cannot_be_made_is_told_once(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    root = tmp_path / "file"
    root.write_text("in the way")
    async with open_chat(script=SCRIPT, options=kept(root / "sessions")) as chat:
        await chat.ask("one")
        await chat.until(lambda: "this chat is not saved" in chat.transcript())
        await chat.ask("two")
        await chat.until(lambda: not desk_of(chat)._maker.is_at_it)
        assert chat.transcript().count("this chat is not saved") == 1
        root.unlink()
        await chat.ask("three")
        name = await saved(chat)
    assert len(on_disk(root / "sessions", name).path()) == 3


async def test_a_chat_that_could_never_be_saved_is_told_at_the_end(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    root = tmp_path / "file"
    root.write_text("in the way")
    async with open_chat(script=SCRIPT, options=kept(root / "sessions")) as chat:
        await chat.ask("one")
        with pytest.raises(SessionFileError):
            desk_of(chat).close()


async def test_the_budget_drops_kv_and_never_text(
    open_chat: OpenChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.press("ctrl+n")
        await chat.ask("two")
        newest = desk_of(chat)
        await chat.until(lambda: newest.session and newest.session.tree.snapshots)
        one = Library(tmp_path).summaries()[0].kv_bytes
        monkeypatch.setattr(sessions_desk, "KV_BUDGET_BYTES", one)
        name = await saved(chat)
    found = {s.first: s for s in Library(tmp_path).summaries()}
    assert found["two"].name == name
    assert found["two"].kv_bytes > 0 == found["one"].kv_bytes
    assert on_disk(tmp_path, found["one"].name).path()[0].answer_text


async def test_a_new_chat_is_another_session(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.press("ctrl+n")
        await chat.ask("two")
        await saved(chat)
    library = Library(tmp_path)
    assert sorted(s.first for s in library.summaries()) == ["one", "two"]


async def test_the_list_opens_filters_renames_deletes_and_brings_back(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        for text in ("apples", "pears", "plums"):
            await chat.ask(text)
            await chat.press("ctrl+n")
        await chat.until(lambda: not desk_of(chat).kv._left)
        await chat.press("ctrl+r")
        screen = chat.app.screen
        assert isinstance(screen, SessionsScreen)
        picture = chat.picture()
        assert "apples" in picture
        assert "1 turn" in picture
        await chat.press(*"pears")
        assert screen.chosen is not None
        assert screen.chosen.first == "pears"
        await chat.press("ctrl+e")
        screen.query_one("Input").value = "fruit"  # type: ignore[attr-defined]
        await chat.press("enter")
        assert "fruit" in Library(tmp_path).names()
        await chat.press(*"fruit", "ctrl+x")
        assert "fruit" not in Library(tmp_path).names()
        await chat.press("ctrl+z")
        assert "fruit" in Library(tmp_path).names()
        await chat.press("ctrl+s")
        assert not list((tmp_path / "fruit" / "snapshots").iterdir())
        await chat.press("enter")
        assert "you  pears" in chat.transcript()
        session = desk_of(chat).session
        assert session is not None
        assert session.name == "fruit"
        desk_of(chat).close()


async def test_commands_manage_sessions(open_chat: OpenChat, tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    async with open_chat(script=SCRIPT, options=kept(root)) as chat:
        await chat.ask("one")
        await chat.until(lambda: desk_of(chat).session)
        await chat.send("/rename mine")
        await chat.send("/save copy")
        await chat.ask("two")
        await chat.send("/export " + str(tmp_path / "out.md"))
        await chat.send("/del copy")
        assert "you are in the session" in chat.transcript()
        await chat.until(lambda: not desk_of(chat).kv._left)
        await chat.send("/del mine")
        await chat.send("/undelete mine")
        await chat.send("/save")
        assert "ds4chat -r copy --sessions" in chat.transcript().replace("\n", "")
        await chat.send("/goto nowhere")
        assert "no branch or turn" in chat.transcript()
        await chat.send("/resume ../x")
        assert "cannot name a session" in chat.transcript()
        await saved(chat)
    assert "First **answer**." in (tmp_path / "out.md").read_text()
    assert [t.question for t in on_disk(root, "mine").path()] == ["one"]
    assert [t.question for t in on_disk(root, "copy").path()] == ["one", "two"]


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
    async with open_chat(reply, options=kept(tmp_path, name)) as chat:
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


async def test_a_replay_shows_what_was_seen_without_an_engine(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    replies = (Reply(answer="Fine **so** far."), Reply(answer=LONG, crash_after=3))
    async with open_chat(*replies, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.send("two")
        await chat.phase(Phase.DEAD)
        seen = chat.transcript().split("broken off")[0]
        rounds = [turn.rounds for turn in chat.chat.conversation.turns]
        name = await saved(chat)
    engine = ReplayEngine(on_disk(tmp_path, name), pace=0)
    options = ChatOptions(is_animated=False, questions=engine.questions)
    app = Ds4ChatApp(engine, Load(request_id=0, model_path="x"), options)
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            chat = Chat(app, pilot, engine)  # type: ignore[arg-type]
            await chat.until(lambda: len(chat.chat.conversation.turns) == 2)
            await chat.until(lambda: not chat.chat.is_busy)
            assert chat.transcript().startswith(seen.rsplit("──", 1)[0])
            assert [turn.rounds for turn in chat.chat.conversation.turns] == rounds
            await chat.send("three")
            await chat.until(lambda: "this is a replay" in chat.transcript().lower())
            assert chat.prompt.text == "three"
    finally:
        engine.close()


def test_the_desk_imports_no_tensors() -> None:
    code = "import sys, ds4chat.tui.sessions_desk; assert 'mlx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
