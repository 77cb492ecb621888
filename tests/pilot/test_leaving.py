"""Leaving: what a disk refused and what was not sent yet is not lost without a word."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.message import Message
from textual.timer import Timer

from ds4chat.demo import Reply, Script
from ds4chat.errors import SessionFileError
from ds4chat.store import files
from ds4chat.store.library import Library
from ds4chat.tui.history import FILE, MAX_ENTRY
from ds4chat.tui.screens import keeping
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat
from tests.pilot.keeping import SCRIPT, desk_of, kept, on_disk, saved


class Disk:
    """A disk that can be full below one folder."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        real_write, real_open = files.FileOps.write, files.FileOps.open
        ours: set[int] = set()

        def opened(ops: files.FileOps, path: Path, flags: int) -> int:
            fd = real_open(ops, path, flags)
            (ours.add if root in path.parents else ours.discard)(fd)
            return fd

        def write(ops: files.FileOps, fd: int, data: bytes) -> int:
            if self.is_full and fd in ours:
                raise OSError(28, "No space left on device")
            return real_write(ops, fd, data)

        patch.setattr(files.FileOps, "open", opened)
        patch.setattr(files.FileOps, "write", write)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(root, monkeypatch)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def until_unsaved(chat: Chat) -> None:
    """Wait until the disk refused something, and the screen heard of it."""
    await chat.until(lambda: "not saved" in chat.picture().splitlines()[0])
    assert desk_of(chat).is_unsaved


async def ask_until_full(chat: Chat, disk: Disk) -> None:
    """One turn that is saved, and one that the disk does not take."""
    await ask_and_fill(chat, disk)
    await until_unsaved(chat)


async def ask_and_fill(chat: Chat, disk: Disk) -> None:
    await chat.ask("one")
    session = desk_of(chat).session
    assert session is not None
    await chat.until(lambda: session.tree.snapshots)
    assert session.flush()
    disk.is_full = True
    await chat.ask("two")


async def test_a_full_disk_is_asked_about_and_the_chat_is_copied(
    open_chat: OpenChat, root: Path, disk: Disk, elsewhere: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(root)) as chat:
        await ask_until_full(chat, disk)
        assert "not saved" in chat.picture().splitlines()[0]
        await chat.press("ctrl+q")
        assert chat.app.is_running
        said = " ".join(chat.transcript().split())
        assert "Not saved: 1 turn of this chat (No space left on device)." in said
        assert list(elsewhere.iterdir()) == []
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
        with pytest.raises(SessionFileError, match="1 turn could not be saved") as caught:
            desk_of(chat).close()
    loss = desk_of(chat).loss
    assert loss is not None
    assert loss.rescue is not None
    assert f"-r {loss.rescue.name} --sessions {loss.rescue.root}" in caught.value.hint
    assert f"mv {loss.rescue.folder} {root}" in caught.value.hint
    assert loss.rescue.root.parent == elsewhere
    assert loss.rescue.root.stat().st_mode & 0o777 == 0o700
    turns = on_disk(loss.rescue.root, loss.rescue.name).path()
    assert [(turn.question, turn.answer_text) for turn in turns] == [
        ("one", "First **answer**."),
        ("two", "Second."),
    ]


async def test_who_leaves_before_the_screen_hears_of_a_full_disk_is_told_why(
    open_chat: OpenChat, root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat(script=SCRIPT, options=kept(root)) as chat:
        real = chat.screen._post

        def post(message: Message) -> None:
            if not isinstance(message, keeping.SessionTrouble):  # that comes later
                real(message)

        monkeypatch.setattr(chat.screen, "_post", post)
        await ask_and_fill(chat, disk)
        await chat.until(lambda: desk_of(chat).is_unsaved)
        await chat.press("ctrl+q")
        words = "Not saved: 1 turn of this chat (No space left on device)."
        assert words in " ".join(chat.transcript().split())
        disk.is_full = False
        await saved(chat)


async def test_room_again_is_said_and_nothing_is_asked(
    open_chat: OpenChat, root: Path, disk: Disk, elsewhere: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(root)) as chat:
        await ask_until_full(chat, disk)
        disk.is_full = False
        chat.screen._save_again()
        await chat.until(lambda: "Saving works again" in chat.transcript())
        assert "not saved" not in chat.picture().splitlines()[0]
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
        name = desk_of(chat).close()
    assert len(on_disk(root, name).path()) == 2
    assert list(elsewhere.iterdir()) == []


async def test_a_chat_that_was_never_saved_is_copied_whole(
    open_chat: OpenChat, root: Path, disk: Disk
) -> None:
    async with open_chat(script=SCRIPT, options=kept(root)) as chat:
        disk.is_full = True
        await chat.ask("What is 4+4?")
        await until_unsaved(chat)
        assert "not saved" in chat.picture().splitlines()[0]
        await chat.press("ctrl+q")
        assert "Not saved: 1 turn" in chat.transcript()
        with pytest.raises(SessionFileError):
            desk_of(chat).close()
    loss = desk_of(chat).loss
    assert loss is not None
    assert loss.rescue is not None
    assert loss.rescue.name == "what-is-4-4-rescued"
    turn = on_disk(loss.rescue.root, loss.rescue.name).path()[0]
    assert turn.answer_text == "First **answer**."


async def test_a_new_chat_leaves_no_unsaved_one_behind(
    open_chat: OpenChat, root: Path, disk: Disk, elsewhere: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(root)) as chat:
        await ask_until_full(chat, disk)
        await chat.press("ctrl+n")
        await chat.until(lambda: "could not be saved" in chat.transcript())
        disk.is_full = False
        await chat.ask("three")
        await saved(chat)
    place = next(iter(elsewhere.iterdir()))
    assert len(on_disk(place, Library(place).names()[0]).path()) == 2


async def test_where_no_place_takes_a_copy_that_is_said_first(
    open_chat: OpenChat, root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ds4chat.store.rescue.places", lambda: iter(()))
    async with open_chat(script=SCRIPT, options=kept(root)) as chat:
        await ask_until_full(chat, disk)
        await chat.press("ctrl+q")
        said = " ".join(chat.transcript().split())
        assert "No other place takes a copy either" in said
        disk.is_full = False
        await saved(chat)


async def test_a_draft_is_there_the_next_time(open_chat: OpenChat, tmp_path: Path) -> None:
    options = kept(tmp_path / "sessions", state_dir=tmp_path)
    async with open_chat(script=SCRIPT, options=options) as chat:
        await chat.paste("a long\ndraft")
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    async with open_chat(script=SCRIPT, options=options) as chat:
        await chat.press("up")
        assert chat.prompt.text == "a long\ndraft"


async def test_a_draft_too_long_to_keep_is_asked_about(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    options = kept(tmp_path / "sessions", state_dir=tmp_path)
    async with open_chat(script=SCRIPT, options=options) as chat:
        await chat.paste("x" * (MAX_ENTRY + 1))
        await chat.press("ctrl+q")
        assert chat.app.is_running
        assert "cannot be kept for next time" in chat.transcript()
        await chat.press("y", "ctrl+q")  # typing on: asked anew
        assert chat.app.is_running
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    assert not (tmp_path / FILE).exists()


async def test_a_key_empties_the_prompt_and_two_bring_it_back(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    async with open_chat(script=SCRIPT, options=kept(tmp_path)) as chat:
        await chat.paste("one\ntwo\nthree")
        await chat.press("alt+u")
        assert chat.prompt.text == ""
        await chat.press("ctrl+underscore")
        assert chat.prompt.text == "one\ntwo\nthree"
        await chat.press("alt+u", "up")
        assert chat.prompt.text == "one\ntwo\nthree"


def hand_timers(
    chat: Chat, seconds: float, patch: pytest.MonkeyPatch
) -> list[Callable[[], None]]:
    """The ends of the screen's timers of that length, for the test to call."""
    real, ends = chat.screen.set_timer, list[Callable[[], None]]()

    def set_timer(delay: float, callback: Callable[[], None]) -> Timer:
        if delay == seconds:
            ends.append(callback)
        return real(delay, callback)

    patch.setattr(chat.screen, "set_timer", set_timer)
    return ends


async def test_esc_just_after_a_stop_marks_no_turn(
    open_chat: OpenChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(replies=(Reply(answer="word " * 40, holds=(1,)),))
    async with open_chat(script=script, options=kept(tmp_path)) as chat:
        ends = hand_timers(chat, keeping.REWIND_ARMED_S, monkeypatch)
        await chat.send("go")
        await chat.steps(1)
        await chat.press("escape", "escape", "escape")
        await chat.until(lambda: not chat.chat.is_busy)
        await chat.press("escape", "escape")
        assert chat.screen.transcript.marked_turn is None
        assert ends
        for end in ends:
            end()
        await chat.press("escape", "escape")
        assert chat.screen.transcript.marked_turn == 1


async def test_a_first_key_counts_for_its_own_time(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("one")
        await chat.press("escape")
        first = chat.screen._rewind_armed
        assert first is not None
        await chat.press("escape", "escape", "escape")  # marks, leaves, counts anew
        assert chat.screen.transcript.marked_turn is None
        second = chat.screen._rewind_armed
        assert second is not None
        assert second is not first
        assert first._task is None  # it would have ended the second
        chat.screen._disarm_rewind()
        await chat.press("escape")
        assert chat.screen.transcript.marked_turn is None
