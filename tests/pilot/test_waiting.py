"""Waiting for the engine, and its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.protocol.events import ModelLoading
from ds4chat.tui import log_tail
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.widgets import status
from tests.pilot.conftest import OpenChat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4


async def test_a_crash_shows_cause_log_and_way_on(open_chat: OpenChat, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    mine, other = os.getpid(), os.getpid() + 1
    head = "2026-07-31 12:00:00,000 {} INFO "
    log.write_bytes(
        f"{head.format(mine)}oldest\nfirst\n\nsecond \x1b[2J\n".encode()
        + f"{head.format(other)}of another window\nand its traceback\n".encode()
        + f"{head.format(mine)}last [/red] ".encode() + b"\xff\n"
    )  # fmt: skip
    options = ChatOptions(is_animated=False, log_path=str(log))
    script = Script(replies=(Reply(answer=LONG, crash_after=1), Reply(answer="Back.")))
    async with open_chat(script=script, options=options, size=(120, 40)) as chat:
        await chat.send("go")
        await chat.phase(Phase.DEAD)
        await chat.until(lambda: "The engine stopped\n" in chat.picture())
        picture = chat.picture()
        assert "The scripted engine stopped, as its script says." in picture
        assert f"log: {log}" in picture
        assert "second ␛[2J" in picture
        assert "last [/red] \ufffd" in picture
        assert "oldest" not in picture
        assert "another window" not in picture
        assert "its traceback" not in picture
        assert "F8 or /restart starts it again; the conversation is kept" in picture
        for fact in ("as its script says", str(log), "F8 or /restart", "is kept ·"):
            assert " ".join(picture.split()).count(fact) == 1
        await chat.press(*"typing goes on")
        assert chat.prompt.text == "typing goes on"
        await chat.press("f8")
        await chat.phase(Phase.READY)
        await chat.until(lambda: "The engine stopped\n" not in chat.picture())
        words = " ".join(chat.transcript().split())
        assert "as its script says. It runs again; the conversation goes on." in words
        assert chat.chat.failure is None


@pytest.mark.parametrize("name", ["", "none.log", "\0", "."])
def test_a_log_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    assert log_tail.log_end(str(tmp_path / name), 1) == []


def test_a_log_of_other_runs_is_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("2026-07-31 12:00:00,000 77 ERROR out of memory\n")
    assert log_tail.log_end(str(log), 77) == ["2026-07-31 12:00:00,000 77 ERROR out of memory"]
    assert log_tail.log_end(str(log), 7) == []
    assert log_tail.log_end(str(log), None) == []
    assert log_tail.log_end(str(log), 77, "The engine ended: Out of memory.") == []


def test_only_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    head = "2026-07-31 12:00:00,000 7 INFO"
    log.write_text("".join(f"{head} {n} {'x' * 300}\n" for n in range(10_000)))
    found = log_tail.log_end(str(log), 7)
    assert [line.split()[4] for line in found] == ["9997", "9998", "9999"]
    assert {len(line) for line in found} == {log_tail.MAX_LINE}


def test_loading_estimates_what_is_left() -> None:
    event = ModelLoading(
        stage="reading weights",
        done_bytes=20 << 30,
        total_bytes=80 << 30,
        elapsed_s=10.0,
        done_tensors=412,
        total_tensors=1328,
    )
    assert status.loading(event) == (
        "reading weights  ████░░░░░░░░░░░░  tensor 412 of 1,328, 21.5 of 85.9 GB, 10 s, "
        "about 30 s left · Esc stops"
    )


async def test_a_load_that_is_silent_for_long_goes_on_counting(open_chat: OpenChat) -> None:
    now = [100.0]
    script = Script(replies=(), load_stages=(("compiling", 0),), is_load_held=True)
    async with open_chat(script=script, is_ready=False) as chat:
        await chat.until(lambda: "compiling  " in chat.picture())
        status_lines = chat.screen.query_one(status.StatusLines)
        status_lines._clock, status_lines._since = (lambda: now[0]), 96.0
        status_lines.show(chat.chat)
        await chat.pilot.pause()
        assert "compiling  0.4 s" in chat.picture()
        now[0] = 112.0
        await chat.until(lambda: "compiling  16 s" in chat.picture())


async def test_escape_while_loading_takes_the_message_back_and_then_stops(
    open_chat: OpenChat,
) -> None:
    script = Script(replies=(Reply(answer="Yes."),), is_load_held=True)
    async with open_chat(script=script, is_ready=False) as chat:
        await chat.until(lambda: "· Esc stops" in chat.picture())
        assert "Esc stop " in chat.picture()
        await chat.send("early")
        await chat.send("bird")
        assert "Esc takes the message back" in " ".join(chat.picture().split())
        assert "Esc take back " in chat.picture()
        await chat.press("escape")
        assert chat.prompt.text == "early\n\nbird"
        assert chat.chat.phase is Phase.LOADING
        assert "· Esc stops" in chat.picture()
        assert "waits:" not in chat.picture()
        await chat.press("escape")
        await chat.phase(Phase.STOPPED)
        assert chat.prompt.text == "early\n\nbird"


async def test_escape_takes_back_what_waits_for_a_dead_engine(open_chat: OpenChat) -> None:
    script = Script(replies=(Reply(answer=LONG, crash_after=1),))
    async with open_chat(script=script) as chat:
        await chat.send("go")
        await chat.phase(Phase.DEAD)
        await chat.send("later")
        assert "waits: later" in chat.picture()
        await chat.press("escape")
        assert chat.prompt.text == "later"
        assert not chat.chat.conversation.queue


async def test_esc_cancels_while_the_prompt_is_read(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(0,)), Reply(answer="Yes.")) as chat:
        await chat.send("go " * 3_000)
        await chat.until(lambda: "reading the prompt" in chat.picture())
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)
        await chat.ask("again")
        assert "Yes." in chat.transcript()


async def test_a_long_reply_rings_only_when_nobody_looks(
    open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat() as chat:
        rung: list[bool] = []
        monkeypatch.setattr(chat.app, "bell", lambda: rung.append(True))
        chat.screen.reply_ended(60.0)
        assert not rung
        chat.app.app_focus = False
        chat.screen.reply_ended(2.0)
        assert not rung
        chat.screen.reply_ended(60.0)
        assert rung == [True]
