"""Whole sessions: lists, commands, two windows, other models, failing disks, replay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat import settings
from ds4chat.demo import Reply, Script
from ds4chat.demo.replay import ReplayEngine
from ds4chat.errors import SessionFileError
from ds4chat.protocol.commands import Load, Submit
from ds4chat.protocol.types import Sampling
from ds4chat.store import files
from ds4chat.store.library import Library
from ds4chat.tui.app import Ds4ChatApp
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.screens.sessions import SessionsScreen
from ds4chat.tui.sessions_opening import TAKEN
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat
from tests.pilot.keeping import LONG, SCRIPT, desk_of, kept, on_disk, saved


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
            words = " ".join(second.transcript().split())
            assert words.count("Your message stays in the prompt.") == 1
            assert "read-only" in second.picture().splitlines()[0]
            assert not second.engine.sent(Submit)
            second.prompt.text = ""
            await second.send("/takeover")
            assert "read-only" not in second.picture().splitlines()[0]
            words = second.transcript().partition("The session is yours now; ")[2]
            assert "the other window only reads." in words
            assert "middle of a reply" not in words
            await second.ask("two")
            assert await saved(second) == session.name
        await first.ask("mine")  # one process: the claim on the lock tells no other
        await first.until(lambda: session.is_read_only)
        words = " ".join(first.transcript().split())
        assert words.count("Another window goes on with this session now") == 1
        assert str(tmp_path) not in words
        assert "read-only" in first.picture().splitlines()[0]
        assert "was not changed" not in words
        await first.send("more")
        assert first.prompt.text == "more"
        desk_of(first).close()
    assert [t.question for t in on_disk(tmp_path, session.name).path()] == ["one", "two"]


async def test_a_session_taken_over_in_mid_reply(open_chat: OpenChat, tmp_path: Path) -> None:
    held = Script(replies=(Reply(answer=LONG, holds=(1, 2)), Reply(answer="Fine.")))
    async with open_chat(script=held, options=kept(tmp_path)) as first:
        await first.send("one")
        await first.steps(1)
        await first.until(lambda: desk_of(first).session)
        session = desk_of(first).session
        assert session is not None
        session.flush()
        async with open_chat(script=SCRIPT, options=kept(tmp_path, session.name)) as second:
            await second.until(lambda: "read-only here" in second.transcript())
            await second.send("/takeover")
            await second.until(lambda: "yours now" in second.transcript())
            words = " ".join(second.transcript().split())
            assert "what that had so far is kept, /retry asks again." in words
            turn = desk_of(second).tree.turns[1].finished
            assert turn is not None
            assert turn.message == TAKEN
            await saved(second)
        await first.press("f3")  # any command lets it go on
        await first.until(lambda: "Another window" in first.transcript())
        await first.press("f3")
        await first.until(lambda: not first.chat.is_busy)
        words = " ".join(first.transcript().split())
        assert "The reply that runs is shown to its end; /save NAME keeps all of it" in words
        assert "cannot be saved" not in words
        await first.send("/save")
        assert "/save NAME goes on in a copy." in " ".join(first.transcript().split())
        await first.send("/save whole")
        await first.until(lambda: "goes on as the session whole" in first.transcript())
        await first.ask("two")
        await saved(first)
    assert on_disk(tmp_path, "whole").turns[1].answer_text == LONG
    partial = on_disk(tmp_path, session.name).turns[1].answer_text
    assert LONG.startswith(partial)
    assert len(partial) < len(LONG)


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


@pytest.mark.parametrize(
    ("given", "environ", "words"),
    [
        ({}, {}, "temp: 0.8 as in the session (the default: 0.0)"),
        (
            {},
            {"DS4CHAT_TEMP": "0.5"},
            "temp: 0.8 as in the session (the variable DS4CHAT_TEMP: 0.5)",
        ),
        (
            {"temp": "0.5"},
            {},
            "temp: 0.5 by this start's flag (the session had 0.8)",
        ),
    ],
)
async def test_the_source_of_a_setting_that_differs_is_named(
    given: dict[str, object],
    environ: dict[str, str],
    words: str,
    open_chat: OpenChat,
    tmp_path: Path,
) -> None:
    options = kept(tmp_path, sampling=Sampling(temperature=0.8))
    async with open_chat(script=SCRIPT, options=options) as chat:
        await chat.ask("one")
        name = await saved(chat)
    start = settings.load(given, environ=environ)
    sampling = Sampling(temperature=start.temp)
    options = kept(tmp_path, name, settings=start, sampling=sampling)
    async with open_chat(script=SCRIPT, options=options) as chat:
        await chat.until(lambda: "Settings that differ" in chat.transcript())
        assert words in chat.transcript()
        desk_of(chat).close()


async def test_the_source_of_a_system_text_that_differs_is_named(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path, system="Old.")) as chat:
        await chat.ask("one")
        name = await saved(chat)
    config = tmp_path / "config.toml"
    config.write_text('system = "New."\n')
    start = settings.load(config_file=config, environ={})
    options = kept(tmp_path, name, settings=start, system="New.")
    async with open_chat(script=SCRIPT, options=options) as chat:
        await chat.until(lambda: "Settings that differ" in chat.transcript())
        assert "not that of the settings file" in chat.transcript()
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
        await chat.until(lambda: "This chat is not saved" in chat.transcript())
        await chat.ask("two")
        await chat.until(lambda: not desk_of(chat)._maker.is_at_it)
        assert chat.transcript().count("This chat is not saved") == 1
        root.unlink()
        await chat.ask("three")
        name = await saved(chat)
    assert len(on_disk(root / "sessions", name).path()) == 3


async def test_a_chat_that_could_never_be_saved_is_told_at_the_end(
    open_chat: OpenChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = tmp_path / "file"
    root.write_text("in the way")
    async with open_chat(script=SCRIPT, options=kept(root / "sessions")) as chat:
        await chat.ask("one")
        with pytest.raises(SessionFileError):
            desk_of(chat).close()


async def test_the_budget_drops_kv_and_never_text(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.ask("one")
        await chat.press("ctrl+n")
        await chat.ask("two")
        newest = desk_of(chat)
        await chat.until(lambda: newest.session and newest.session.tree.snapshots)
        one = Library(tmp_path).summaries()[0].kv_bytes
        newest.plan = replace(newest.plan, kv_budget_bytes=one)
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
        assert "You are in the session" in chat.transcript()
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


async def test_a_path_that_cannot_be_exported_to_gets_an_example_that_works(
    open_chat: OpenChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "there.md").touch()
    monkeypatch.chdir(work)
    cases = {
        "bad/": ("bad/: a folder that is not there", "bad.md"),
        "folder": ("folder: a folder; an export is a file", "folder/NAME.md"),
        "folder/": ("folder: a folder; an export is a file", "folder/NAME.md"),
        "no/out.md": ("the folder no is not there", "out.md"),
        "there.md/out.html": ("the folder there.md is a file, not a folder", "out.html"),
        "out.pdf": ("the suffix '.pdf' names no format", "out.md"),
        "plain": ("plain: no suffix", "plain.md"),
        "there.md": ("there.md: it is there already", "there-2.md"),
        "there.pdf": ("the suffix '.pdf' names no format", "there-2.md"),
    }
    async with open_chat(script=SCRIPT, options=kept(tmp_path), size=(160, 60)) as chat:
        await chat.ask("one")
        await chat.until(lambda: desk_of(chat).session)
        session = desk_of(chat).session
        assert session is not None
        for given, (what, example) in cases.items():
            await chat.send(f"/export {given}")
            words = " ".join(chat.transcript().split())
            good = example.replace("NAME", session.name)
            assert what in words
            assert words.endswith(f"For example: /export {good}")
        await chat.send(f"/export {'x' * 5000}.md")
        assert "cannot be written: File name too long" in " ".join(chat.transcript().split())
        for example in {example for _, example in cases.values()}:
            await chat.send(f"/export {example.replace('NAME', session.name)}")
            assert "Written: " in chat.transcript().splitlines()[-1]
        await saved(chat)
