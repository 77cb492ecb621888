"""Commands that run another part of the program, or load the model anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat.demo import Reply, Script
from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Load
from ds4chat.tui.controller import Phase
from tests.pilot.conftest import OpenChat
from tests.pilot.driver import Chat


def words_of(chat: Chat) -> str:
    return " ".join(chat.transcript().split())


async def test_a_subcommand_runs_beside_the_chat(open_chat: OpenChat, tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUX")
    async with open_chat(size=(120, 40)) as chat:
        await chat.send(f"/inspect {file}")
        assert "runs beside the chat" in words_of(chat)
        await chat.press(*"typing")
        assert chat.prompt.text == "typing"
        await chat.until(lambda: "GGUF" in chat.transcript().split("beside the chat")[1])
        assert str(file) in chat.transcript().replace("\n     ", "")


async def test_what_each_command_runs(
    open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat(size=(120, 40)) as chat:
        ran: list[tuple[str, ...]] = []
        monkeypatch.setattr(chat.screen, "run_program", ran.append)
        chat.chat.load = Load(request_id=0, model_path="a.gguf", support_path="b.gguf")
        for line in ("/inspect", "/doctor", "/bench ui", "/bench"):
            await chat.send(line)
        pair = ("--model", "a.gguf", "--support", "b.gguf")
        assert ran == [
            ("inspect", "a.gguf"),
            ("doctor",),
            ("bench", "ui"),
            ("bench", "decode", *pair),
        ]
        await chat.send("/bench everything")
        assert "is none of decode, prefill" in words_of(chat)
        assert chat.chat.info is not None
        chat.chat.info = replace(chat.chat.info, weight_bytes=80 << 30)
        await chat.send("/bench spec")
        assert "Leave, then: ds4chat bench spec --model a.gguf --support b.gguf" in (
            words_of(chat)
        )
        chat.chat.load = Load(request_id=0, model_path="")
        await chat.send("/inspect")
        assert "no model file is open" in words_of(chat)
        assert len(ran) == 4


async def test_another_context_is_asked_for_twice_and_loads_anew(open_chat: OpenChat) -> None:
    script = Script(
        replies=(Reply(answer="Yes."),),
        info=replace(default_info(ctx=4_096), ctx_trained=65_536),
    )
    async with open_chat(script=script, size=(120, 40)) as chat:
        await chat.ask("go")
        await chat.send("/ctx")
        assert f"Context: 4,096 tokens, {chat.chat.n_context} of them used" in words_of(chat)
        await chat.send("/ctx 8192")
        assert "/ctx 8192 once more does it" in words_of(chat)
        assert "tokens again, about" in words_of(chat)
        assert len(chat.engine.sent(Load)) == 1
        await chat.send("/stats")
        await chat.send("/ctx 8192")  # asked anew: something came between
        assert len(chat.engine.sent(Load)) == 1
        await chat.send("/ctx 16384")
        assert len(chat.engine.sent(Load)) == 1
        await chat.send("/ctx 16384")
        await chat.until(lambda: len(chat.engine.sent(Load)) == 2)
        assert chat.engine.sent(Load)[1].ctx == 16_384
        await chat.phase(Phase.READY)
        await chat.ask("more")
        assert len(chat.chat.conversation.turns) == 2
        await chat.send("/ctx 99999999")
        assert "the model was trained for 65,536" in words_of(chat)
        await chat.send("/ctx auto")
        assert "auto is for the start" in words_of(chat)


async def test_a_running_reply_keeps_its_context(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer="word " * 40, holds=(1,))) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.send("/ctx 64")
        assert "a reply runs" in words_of(chat).lower()
        chat.chat.stop()
        await chat.until(lambda: not chat.chat.is_busy)
