"""Whatever a model, a file or a person writes is shown as written, on every surface."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.demo import Reply
from ds4chat.demo.script import Failure, Script, default_info
from ds4chat.protocol.types import Channel
from ds4chat.tui.widgets.transcript import Transcript
from tests.pilot.driver import Chat, run_chat
from tests.pilot.keeping import desk_of, kept, saved
from tests.pilot.transcript_host import picture, screen_text, span, transcript

MARKUP = [
    "[/]", "[/red]", "[bold", "[0]", "[1, 2]", "[link=https://x.y]", "[@click=app.quit]",
    "[@click=app.quit]press[/]", "\\[b]", "[$error]x[/]", "[b][i]x", "]]", "[[]]",
]  # fmt: skip
ESCAPES = [
    "\x1b[31m",
    "\x1b]8;;http://x\x07y\x1b]8;;\x07",
    "\x9b2J",
    "\x1b[?1049l",
    "\x07",
    "\r",
]


def check_harmless(widget: Transcript) -> None:
    """No cell carries an action or a link, and none holds a control character."""
    for row in picture(widget):
        for text, style in row:
            assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)
            assert style.link is None
            assert "@click" not in style.meta


@pytest.mark.parametrize("markup", MARKUP)
async def test_markup_split_over_tokens(markup: str) -> None:
    written = markup.replace("\\[", "[")  # in Markdown a backslash hides the bracket
    async with transcript(60, 12) as widget:
        for cut in (1, 2, len(markup) // 2, len(markup) - 1):
            widget.clear()
            widget.add_user(f"u {markup} v", 1)
            widget.begin_reply(1)
            for part in ("see ", markup[:cut], markup[cut:], " end"):
                if part:
                    widget.append(1, Channel.ANSWER, [span(part)])
                    widget.flush()
            check_harmless(widget)
            widget.finish_reply(1, "receipt")
            shown = screen_text(widget)
            assert f"u {markup} v" in shown
            assert f"see {written} end" in shown


@pytest.mark.parametrize("escape", ESCAPES, ids=ascii)
async def test_escape_sequences_split_over_tokens(escape: str) -> None:
    async with transcript(60, 20) as widget:
        for cut in range(len(escape) + 1):
            widget.clear()
            widget.add_user(f"u{escape}v", 1)
            widget.begin_reply(1)
            for channel in (Channel.THINKING, Channel.ANSWER):
                for part in ("a", escape[:cut], escape[cut:], "b"):
                    if part:
                        widget.append(1, channel, [span(part)])
                        widget.flush()
            check_harmless(widget)
            widget.finish_reply(1, escape)
            widget.add_notice(escape, "error")
            widget.flush()
            check_harmless(widget)


def everywhere(markup: str) -> Script:
    """A model whose name, reasoning, answer, ghosts, notices and errors are markup."""
    info = default_info()
    object.__setattr__(info, "name", markup)
    object.__setattr__(info, "support_name", markup)
    object.__setattr__(info, "notes", (f"note {markup}",))
    reply = Reply(
        answer=f"A {markup} answer", thinking=f"T {markup}", accepts=(0, 2),
        warning=Failure(message=f"W {markup}", hint=f"H {markup}"),
    )  # fmt: skip
    refused = Reply(answer="", triggers=("refuse",), refusal=Failure(message=f"R {markup}"))
    return Script(info=info, replies=(refused, reply))


def check_screen(chat: Chat) -> None:
    assert "\x1b" not in chat.picture()
    for strip in chat.screen._compositor.render_strips(chat.app.size):
        for segment in strip:
            style = segment.style
            if style is not None:
                assert style.link is None
                action = str(style.meta.get("@click", ""))
                assert "quit" not in action


@pytest.mark.parametrize("markup", [" ".join(MARKUP[:7])])
async def test_every_surface_of_the_chat(markup: str, tmp_path: Path) -> None:
    options = kept(tmp_path)
    async with run_chat(script=everywhere(markup), size=(140, 44), options=options) as chat:
        await chat.ask(f"Q {markup}")
        text = chat.transcript()
        for wanted in (f"note {markup}", f"Q {markup}", f"A {markup} answer", f"W {markup}"):
            assert wanted in text
        check_screen(chat)
        for command in (
            "/model",
            "/stats",
            "/why",
            "/ghosts",
            "/colors margin",
            f"/nope {markup}",
        ):
            await chat.send(command)
            check_screen(chat)
        chat.prompt.load("")
        await chat.send(f"refuse {markup}")
        await chat.until(lambda: f"R {markup}" in chat.transcript())
        assert chat.prompt.text == f"refuse {markup}"
        chat.prompt.load("")
        for key in ("ctrl+f", "[", "0", "escape", "f1", "escape", "f4"):
            await chat.press(key)
            check_screen(chat)
        assert not chat.app._exit
        name = await saved(chat)
    async with run_chat(options=kept(tmp_path, resume=name), size=(140, 44)) as chat:
        await chat.until(lambda: chat.chat.conversation.turns)
        assert f"A {markup} answer" in chat.transcript()
        check_screen(chat)
        await chat.send("/sessions")
        await chat.pilot.pause()
        assert "Q " in chat.picture()
        check_screen(chat)
        assert desk_of(chat).session is not None
