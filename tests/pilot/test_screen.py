"""Sizes, panel, header, status and what the whole screen looks like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from ds4chat.demo import TOUR, Reply, Script
from ds4chat.demo.script import default_info
from ds4chat.protocol.types import SpecState
from ds4chat.tui.app import TOUR_BANNER
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.widgets.hint_line import HintLine
from ds4chat.tui.widgets.panel import SpeculationPanel
from ds4chat.tui.widgets.status import StatusLines
from tests.pilot.conftest import OpenChat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("topic", ["quicksort", "poem"])
async def test_a_whole_screen(
    open_chat: OpenChat,
    check_snapshot: Callable[[str, str], None],
    size: tuple[int, int],
    topic: str,
) -> None:
    options = ChatOptions(is_animated=False, banner=TOUR_BANNER)
    async with open_chat(script=TOUR, size=size, options=options) as chat:
        await chat.ask(topic)
        lines = chat.picture().splitlines()
        assert len(lines) == size[1]
        assert "scripted engine answers, not a model" in chat.picture()
        check_snapshot(f"{topic}-{size[0]}x{size[1]}", "\n".join(lines))


async def test_panel_hides_below_100_columns_and_by_key(open_chat: OpenChat) -> None:
    async with open_chat(size=(120, 40)) as chat:
        panel = chat.screen.query_one(SpeculationPanel)
        shown = [panel.display]
        for key in ("f6", "alt+6"):
            await chat.press(key)
            shown.append(panel.display)
        for width in (99, 100):
            await chat.pilot.resize_terminal(width, 40)
            await chat.press("f6")
            shown.append(panel.display)
        assert shown == [True, False, True, False, False]
        assert any("needs 100 columns" in hint for hint in chat.hints())


async def test_panel_tells_the_story_of_the_rounds(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, accepts=(3,)), size=(120, 40)) as chat:
        await chat.ask("go")
        picture = chat.picture()
        assert "SPECULATION  on" in picture
        assert "draft 4.2 verify 30 plain 18 ms" in picture
        usage = chat.chat.conversation.turns[0].usage
        assert usage is not None
        assert usage.accept_len is not None
        assert f"accept length                {usage.accept_len:.2f}" in picture
        assert re.search(
            r"▏ (1\.0|\.9\d) (1\.0|\.9\d) (1\.0|\.9\d) \.00 --\s*$", picture, re.MULTILINE
        )
        assert f"({chat.chat.figures.ratio:.2f}x)" in picture


async def test_panel_shows_the_block_that_was_just_checked(open_chat: OpenChat) -> None:
    reply = Reply(answer=LONG, accepts=(3,), holds=(1,))
    async with open_chat(reply, size=(120, 40)) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.until(lambda: "[#][#][#][x][ ] 3/5" in chat.picture())
        await chat.press("escape")


async def test_parking_is_visible_with_its_reason(open_chat: OpenChat) -> None:
    reply = Reply(answer=LONG * 2, accepts=(0,), holds=(9,))
    async with open_chat(reply, size=(120, 40)) as chat:
        await chat.send("go")
        await chat.until(lambda: chat.chat.figures.state is SpecState.PARKED)
        picture = chat.picture()
        assert "SPECULATION  parked" in picture
        assert "1.0 per block" in picture
        assert "· parked ·" in picture.splitlines()[0]
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)


async def test_a_model_without_a_drafter(open_chat: OpenChat) -> None:
    plain = replace(default_info(), block_size=0, support_name="")
    script = Script(replies=(Reply(answer="Yes."),), info=plain)
    async with open_chat(script=script, size=(120, 40)) as chat:
        await chat.ask("go")
        picture = chat.picture()
        assert "SPECULATION  unavailable" in picture
        assert "no support file" in picture
        assert "DSpark" not in picture.splitlines()[0]
        await chat.press("f3")
        assert "Speculation is unavailable: no support file" in chat.hints()
        assert chat.chat.spec.enabled


async def test_status_of_reading_the_prompt(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(0,))) as chat:
        status = chat.screen.query_one(StatusLines)
        assert not status.display
        await chat.send("go " * 300)
        await chat.until(lambda: "reading the prompt  ████████████████" in chat.picture())
        assert re.search(r"█  (\d+) of \1 tokens", chat.picture())
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)
        assert not status.display


def unwrapped(picture: str) -> str:
    return " ".join(picture.split())


async def test_status_of_a_load(open_chat: OpenChat) -> None:
    stages = (("reading \x1b[2Jweights", 80_800_000_000),)
    script = Script(replies=(), load_stages=stages, load_tensors=1328, is_load_held=True)
    async with open_chat(script=script, is_ready=False) as chat:
        await chat.until(lambda: "80.8 of 80.8 GB" in unwrapped(chat.picture()))
        picture = chat.picture()
        assert "reading ␛[2Jweights  ████████████████" in picture
        assert "tensor 1,328 of 1,328, 80.8" in unwrapped(picture)
        assert "Esc stop" in picture.splitlines()[-1]


async def test_a_warning_before_the_context_is_full(open_chat: OpenChat) -> None:
    script = Script(replies=(Reply(answer="Yes."),), info=default_info(ctx=15))
    async with open_chat(script=script) as chat:
        await chat.ask("hi")
        assert "nearly full" not in chat.picture()
        await chat.ask("there is more to say")
        assert "the context is nearly full: 14 of 15 tokens" in chat.picture()
        assert "/compact drops the oldest turns" in unwrapped(chat.picture())


async def test_page_keys_scroll_the_transcript(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer="line\n\n" * 80)) as chat:
        await chat.ask("go")
        transcript = chat.screen.transcript
        bottom = transcript.scroll_offset.y
        assert bottom > 0
        await chat.press("pageup")
        assert transcript.scroll_offset.y < bottom
        assert chat.prompt.has_focus
        await chat.press("pagedown", "pagedown")
        assert transcript.scroll_offset.y == bottom


async def test_light_theme_changes_the_colours(open_chat: OpenChat) -> None:
    seen = []
    for name in ("dark", "light"):
        options = ChatOptions(is_animated=False, theme=name)
        async with open_chat(Reply(answer=LONG), size=(120, 40), options=options) as chat:
            await chat.ask("go")
            strips = chat.app.screen._compositor.render_strips(chat.app.size)
            styles = {s.style for strip in strips for s in strip if s.style}
            seen.append({str(style.color.name) for style in styles if style.color})
    assert "#55ff55" in seen[0] - seen[1]
    assert "#1a6b1a" in seen[1] - seen[0]


async def test_twenty_thousand_tokens_and_typing_meanwhile(open_chat: OpenChat) -> None:
    reply = Reply(answer="word \n" * 10_000, accepts=(5, 3), holds=(2_000,))
    async with open_chat(reply) as chat:
        await chat.send("go")
        await chat.press("a", "b", "c")
        assert chat.prompt.text == "abc"
        await chat.until(lambda: chat.chat.figures.counts.n_rounds >= 2_000)
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)
        turn = chat.chat.conversation.turns[0]
        assert len(turn.ids) > 8_000
        assert "── stopped" in chat.transcript()


async def test_a_hint_covers_neither_the_prompt_nor_the_end_of_a_reply(
    open_chat: OpenChat,
) -> None:
    async with open_chat(Reply(answer="\n\n".join(f"Line {n}." for n in range(40)))) as chat:
        await chat.ask("go")
        await chat.press(*"typed", "f4")
        lines = chat.picture().splitlines()
        hint = next(n for n, line in enumerate(lines) if "Colours:" in line)
        receipt = next(n for n, line in enumerate(lines) if " tok/s ·" in line)
        prompt = next(n for n, line in enumerate(lines) if line.startswith("> typed"))
        assert receipt < prompt < hint
        assert any("Line 39." in line for line in lines[:receipt])
        assert len(lines) == 24
        chat.screen.query_one(HintLine).clear()
        await chat.pilot.pause()
        assert "Colours:" not in chat.picture()
