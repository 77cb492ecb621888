"""Slash commands, their completion and the palette, on a running screen."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ds4chat.demo import Reply
from ds4chat.protocol.commands import Cancel, Load, SetSpeculation, Submit
from ds4chat.protocol.types import Policy, Sampling, SpecOptions, ThinkMode
from ds4chat.tui.commands import COMMANDS
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.palette import ColourMode
from ds4chat.tui.screens.help import HelpScreen
from tests.pilot.conftest import OpenChat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4
CODE = "Look:\n\n```python\nprint('[/red]')\n```\n\nand\n\n~~~\nlast = 1\n~~~\n"


async def test_unknown_command_names_the_nearest_and_stays(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.send("/retyr")
        assert "There is no command /retyr. Did you mean /retry?" in chat.transcript()
        assert chat.prompt.text == "/retyr"
        assert chat.engine.sent(Submit) == []


async def test_a_path_is_a_message(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("/usr/bin/env is what?")
        assert chat.engine.sent(Submit)[0].messages[0].text == "/usr/bin/env is what?"


async def test_sampling_and_limits_go_with_the_next_message(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        for command in ("/temp 0.7", "/top-p 0.9", "/top-k 40", "/min-p 0.05", "/seed 7"):
            await chat.send(command)
        await chat.send("/max-tokens 3")
        await chat.send("/system Answer briefly.")
        await chat.ask("go")
        submit = chat.engine.sent(Submit)[0]
        assert submit.sampling == Sampling(
            temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, seed=7
        )
        assert submit.max_tokens == 3
        assert submit.messages[0].text == "Answer briefly."
        assert "temp 0.7" in chat.picture()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/temp hot", "'hot' is not a number"),
        ("/top-p 2", "from 0 to 1"),
        ("/confidence x", "/confidence: 'x'"),
        ("/spec maybe", "not on, off or auto"),
        ("/think hard", "not low, high, max or off"),
        ("/colors rainbow", "none of off, source, position, confidence"),
        ("/copy all", "is not 'code'"),
        ("/copy", "no answer to copy"),
        ("/read", "/read wants a file"),
        ("/read /no/such/file", "there is no such file"),
        ("/read /", "a folder"),
        ("/read /dev/null", "neither a file nor a folder"),
        ("/seed x", "a whole number from 0 to 9223372036854775807"),
        ("/undo", "nothing to undo"),
        ("/retry", "nothing to retry"),
        ("/stop", "Nothing runs"),
        ("/answer", "not reasoning now"),
        ("/restart", "no need to restart"),
        ("/why", "no finished reply yet"),
    ],
)
async def test_what_cannot_be_done_is_said(
    open_chat: OpenChat, command: str, words: str
) -> None:
    async with open_chat(size=(120, 40)) as chat:
        await chat.send(command)
        assert words in chat.transcript()
        assert chat.engine.sent(Submit) == []


async def test_spec_commands_act_on_the_running_reply(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("/draft-max 3")
        await chat.send("go")
        await chat.steps(1)
        await chat.send("/confidence 0.25")
        await chat.until(lambda: not chat.chat.is_busy)
        await chat.send("/spec on")
        assert chat.engine.sent(Submit)[0].spec.draft_max == 3
        assert chat.engine.sent(SetSpeculation)[0].spec == SpecOptions(
            draft_max=3, confidence_threshold=0.25
        )
        policies = [chat.chat.spec.policy]
        await chat.send("/spec auto")
        assert [*policies, chat.chat.spec.policy] == [Policy.FIXED, Policy.MONEY]
        await chat.send("/spec off")
        assert "Speculation is off" in chat.transcript()
        await chat.send("/draft-max auto")
        assert chat.chat.spec.draft_max is None


async def test_retry_in_mid_reply_stops_and_asks_again(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.send("/retry")
        await chat.until(lambda: len(chat.engine.sent(Submit)) == 2)
        assert len(chat.engine.sent(Cancel)) == 1
        assert [m.text for m in chat.engine.sent(Submit)[1].messages] == ["go"]
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)


async def test_undo_gives_the_question_back(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("first")
        await chat.ask("second")
        await chat.send("/undo")
        assert chat.prompt.text == "second"
        assert [t.question for t in chat.chat.conversation.turns] == ["first"]


async def test_new_forgets_and_keeps_the_system_text(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.send("/system Be kind.")
        await chat.ask("first")
        await chat.press("ctrl+n")
        assert "first" not in chat.transcript()
        await chat.ask("second")
        assert [m.text for m in chat.engine.sent(Submit)[1].messages] == ["Be kind.", "second"]


async def test_copy(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=CODE)) as chat:
        await chat.ask("go")
        await chat.send("/copy")
        assert chat.app.clipboard == CODE
        await chat.press("alt+y")
        assert chat.app.clipboard == "last = 1\n"


async def test_read_puts_a_file_into_the_prompt(open_chat: OpenChat, tmp_path: Path) -> None:
    path = tmp_path / "a file.txt"
    path.write_text("two\nlines\x1b[2J\n", encoding="utf-8")
    binary = tmp_path / "b.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    async with open_chat(size=(120, 40)) as chat:
        await chat.send(f"/read {path}")
        assert chat.prompt.text == "two\nlines␛[2J"
        assert chat.engine.sent(Submit) == []
        chat.prompt.load("")
        await chat.send(f"/read {binary}")
        assert "not UTF-8 text" in " ".join(chat.transcript().split())


async def test_another_model_can_be_opened_after_a_refusal(open_chat: OpenChat) -> None:
    options = ChatOptions(
        is_animated=False,
        choose_files=lambda name, load: replace(
            load, model_path=name, support_path="/d/s.gguf"
        ),
    )
    async with open_chat(options=options) as chat:
        await chat.send("/model other.gguf")
        assert "a model is loaded" in " ".join(chat.transcript().split())
        chat.chat.phase = Phase.REFUSED
        await chat.send("/model other.gguf")
        await chat.phase(Phase.READY)
        assert [load.model_path for load in chat.engine.sent(Load)] == [
            "model.gguf", "other.gguf",
        ]  # fmt: skip
        assert "Opening other.gguf with s.gguf." in chat.transcript()


async def test_why_a_support_file_is_not_used(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        chat.chat.support_trouble = "No speculation: layers: 1, wanted 2."
        await chat.send("/why")
        assert "layers: 1, wanted 2" in chat.transcript()


async def test_why_stats_and_model(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, accepts=(0, 1)), size=(120, 40)) as chat:
        await chat.ask("go")
        await chat.send("/why")
        await chat.send("/stats")
        await chat.send("/model")
        text = " ".join(chat.transcript().split())
        assert re.search(r"must bring 1\.\d\d tokens to break even; it brought 1\.\d\d", text)
        assert "which is less" in text
        usage = chat.chat.conversation.turns[0].usage
        assert usage is not None
        assert f"Accept length: {usage.accept_len:.2f} over {usage.n_rounds} rounds" in text
        assert "Drafter: scripted drafts, blocks of 5" in text


async def test_thinking_modes(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer="Yes.", thinking="Hm.")) as chat:
        await chat.send("/think low")
        await chat.ask("go")
        await chat.send("/think-max")
        assert "reads all" in " ".join(chat.transcript().split())
        await chat.ask("go")
        await chat.send("/nothink")
        await chat.ask("go")
        modes = [submit.think for submit in chat.engine.sent(Submit)]
        assert modes == [ThinkMode.LOW, ThinkMode.MAX, ThinkMode.OFF]


async def test_colours_by_key_and_command(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        modes = [chat.screen.transcript.colour_mode]
        for keys in (["f4"], [*"/colors off", "enter"], ["alt+4"]):
            await chat.press(*keys)
            modes.append(chat.screen.transcript.colour_mode)
        assert modes == [
            ColourMode.SOURCE,
            ColourMode.POSITION,
            ColourMode.OFF,
            ColourMode.SOURCE,
        ]


async def test_completion(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("/", "t", "e")
        assert "/temp F  temperature" in chat.picture()
        await chat.press("tab")
        assert chat.prompt.text == "/temp "
        chat.prompt.load("/spec a")
        await chat.press("tab")
        assert chat.prompt.text == "/spec auto"
        chat.prompt.load("/to")
        await chat.press("tab")
        assert chat.prompt.text == "/top-"
        chat.prompt.load("no command")
        await chat.press("tab")
        assert chat.prompt.text == "no command"
        assert chat.prompt.has_focus


async def test_palette_runs_a_command(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("hi")
        await chat.press("ctrl+p")
        await chat.until(lambda: chat.app.screen is not chat.screen)
        await chat.press(*"what is loaded")
        await chat.until(lambda: "/model [FILE]  what is loaded" in chat.picture())
        await chat.press("enter")
        await chat.until(lambda: chat.app.screen_stack[-1] is chat.screen)
        await chat.until(lambda: "Model: scripted" in chat.transcript())


async def test_palette_shows_brackets_as_written(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+p")
        await chat.press(*"copy")
        await chat.until(lambda: "/copy [code]" in chat.picture())


async def test_keys_opens_the_key_list(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.send("/keys")
        assert isinstance(chat.app.screen, HelpScreen)
        await chat.until(lambda: "speculation on or off" in chat.picture())
        assert "fallback" not in chat.picture()


async def test_help_names_every_command_and_no_missing_key(open_chat: OpenChat) -> None:
    async with open_chat(size=(120, 160)) as chat:
        await chat.press("f1")
        picture = chat.picture()
        for command in COMMANDS.values():
            assert command.usage in picture
        assert "^R" in picture
