"""The chat as a person uses it: asking, stopping, losing the engine, leaving."""

from __future__ import annotations

import pytest
from textual import events
from textual.geometry import Region

from ds4chat.demo import Failure, Reply, Script
from ds4chat.demo.script import default_info
from ds4chat.protocol.commands import Cancel, Load, SetSpeculation, StopThinking, Submit
from ds4chat.protocol.types import FinishReason, Role, SpecState, ThinkMode
from ds4chat.tui.controller import Phase
from ds4chat.tui.options import ChatOptions
from ds4chat.tui.palette import ColourMode
from ds4chat.tui.screens.help import HelpScreen
from tests.pilot.conftest import OpenChat

LONG = "Some words that fill a few rounds, and then some more of them. " * 4
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)])


@SIZES
async def test_a_reply_streams_and_ends_with_a_receipt(
    open_chat: OpenChat, size: tuple[int, int]
) -> None:
    async with open_chat(Reply(answer="Hello **there**."), size=size) as chat:
        assert chat.prompt.has_focus
        await chat.ask("hi")
        text = chat.transcript()
        assert "you  hi" in text
        assert "ds4  Hello there." in text
        assert "── 8 tok · " in text
        assert "spec · accept" in text
        assert chat.prompt.text == ""
        assert chat.prompt.has_focus
        assert "tok/s" in chat.picture().splitlines()[0]


async def test_second_turn_sends_the_ids_of_the_first(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG)) as chat:
        await chat.ask("one")
        first = chat.chat.conversation.turns[0]
        await chat.ask("two")
        messages = chat.engine.sent(Submit)[1].messages
        assert [m.role for m in messages] == [Role.USER, Role.ASSISTANT, Role.USER]
        assert messages[1].ids == tuple(first.ids) != ()
        assert messages[1].text == LONG
        usage = chat.chat.conversation.turns[1].usage
        assert usage is not None
        assert usage.n_cached >= len(first.ids)


async def test_f3_in_mid_reply_acts_from_the_next_block(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(2,)), Reply(answer="Ok.")) as chat:
        await chat.send("go")
        await chat.steps(2)
        await chat.press("f3")
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.engine.sent(SetSpeculation)[0].spec.enabled is False
        assert chat.chat.figures.state is SpecState.OFF
        usage = chat.chat.conversation.turns[0].usage
        assert usage is not None
        assert (usage.n_rounds, usage.n_plain_steps > 5) == (2, True)
        await chat.ask("again")
        assert chat.engine.sent(Submit)[1].spec.enabled is False
        await chat.press("alt+3")
        assert chat.chat.spec.enabled is True


async def test_esc_stops_and_keeps_the_partial_text(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(3,)), Reply(answer="More.")) as chat:
        await chat.send("go")
        await chat.steps(3)
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)
        turn = chat.chat.conversation.turns[0]
        assert turn.reason is FinishReason.CANCELLED
        assert LONG.startswith(turn.answer_text)
        assert turn.answer_text
        assert "── stopped · " in chat.transcript()
        assert turn.answer_text.split()[0] in chat.transcript()
        await chat.ask("continue")
        assert chat.engine.sent(Submit)[1].messages[1].ids == tuple(turn.ids)


async def test_a_message_typed_meanwhile_waits_and_is_sent_after(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,)), Reply(answer="Two.")) as chat:
        await chat.send("first")
        await chat.steps(1)
        await chat.send("second")
        assert "waits: second" in chat.picture()
        assert len(chat.engine.sent(Submit)) == 1
        await chat.press("f3")  # any command lets the script go on
        await chat.until(lambda: len(chat.chat.conversation.turns) == 2)
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.engine.sent(Submit)[1].messages[-1].text == "second"
        assert "waits:" not in chat.picture()


async def test_up_takes_a_waiting_message_back(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("first")
        await chat.steps(1)
        await chat.send("second")
        await chat.press("up")
        assert chat.prompt.text == "second"
        assert chat.chat.conversation.queue == []
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)


async def test_what_waits_returns_to_the_prompt_when_stopped(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("first")
        await chat.steps(1)
        await chat.send("second")
        await chat.paste("draft")
        await chat.press("escape")
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.prompt.text == "second\ndraft"
        assert len(chat.chat.conversation.turns) == 1


async def test_a_dead_engine_is_restarted_and_the_chat_goes_on(open_chat: OpenChat) -> None:
    script = Script(
        replies=(Reply(answer=LONG, crash_after=2), Reply(answer="I am back.")),
    )
    options = ChatOptions(is_animated=False, log_path="/var/log/engine.log")
    async with open_chat(script=script, options=options, size=(120, 40)) as chat:
        await chat.send("go")
        await chat.phase(Phase.DEAD)
        partial = chat.chat.conversation.turns[0]
        assert partial.ids
        assert partial.answer_text.split()[0] in chat.transcript()
        assert "log: /var/log/engine.log" in chat.picture()
        assert "F8 or /restart" in chat.picture()
        assert "F8 restart" in chat.picture()
        await chat.press("f8")
        await chat.phase(Phase.READY)
        assert len(chat.engine.sent(Load)) == 2
        await chat.ask("go on")
        messages = chat.engine.sent(Submit)[1].messages
        assert messages[1].ids == tuple(partial.ids)
        assert "I am back." in chat.transcript()


async def test_a_message_to_a_dead_engine_waits_for_the_restart(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, crash_after=1), Reply(answer="Here.")) as chat:
        await chat.send("go")
        await chat.phase(Phase.DEAD)
        await chat.send("still there?")
        assert "your message waits" in chat.transcript()
        await chat.send("/restart")
        await chat.until(lambda: "Here." in chat.transcript())
        assert chat.engine.sent(Submit)[-1].messages[-1].text == "still there?"


async def test_a_refused_message_returns_to_the_prompt(open_chat: OpenChat) -> None:
    refusal = Failure(message="too long by 5 tokens", hint="shorten it")
    async with open_chat(Reply(answer="", refusal=refusal)) as chat:
        await chat.send("a question")
        await chat.until(lambda: chat.prompt.text)
        assert chat.prompt.text == "a question"
        assert "Too long by 5 tokens. Shorten it." in chat.transcript()
        assert chat.chat.conversation.turns == []
        assert not chat.chat.is_busy


async def test_a_full_context_says_so(open_chat: OpenChat) -> None:
    script = Script(replies=(Reply(answer=LONG),), info=default_info(ctx=20))
    async with open_chat(script=script) as chat:
        await chat.ask("go")
        assert "── context full · " in chat.transcript()
        assert "/new starts an empty conversation" in chat.transcript()
        assert "ctx 20/20" in chat.picture()


async def test_a_model_that_cannot_be_used_is_told_once(open_chat: OpenChat) -> None:
    script = Script(
        replies=(), load_failure=Failure(message="m.gguf: bad magic", hint="Try another.")
    )
    async with open_chat(script=script, is_ready=False) as chat:
        await chat.phase(Phase.REFUSED)
        await chat.until(lambda: "bad magic" in chat.transcript())
        assert chat.transcript().count("bad magic") == 1
        assert "no model is loaded" in chat.picture()


async def test_loading_can_be_stopped_and_started_again(open_chat: OpenChat) -> None:
    script = Script(replies=(Reply(answer="Yes."),), is_load_held=True)
    async with open_chat(script=script, is_ready=False) as chat:
        await chat.until(lambda: "reading the script" in chat.picture())
        await chat.press("escape")
        await chat.until(lambda: not chat.engine.is_alive)
        assert chat.chat.phase is Phase.STOPPED
        assert "Loading was stopped" in chat.transcript()
        await chat.press("f8")
        await chat.phase(Phase.READY)
        await chat.ask("are you there?")
        assert "Yes." in chat.transcript()


async def test_quitting_while_loading(open_chat: OpenChat) -> None:
    script = Script(replies=(), is_load_held=True)
    async with open_chat(script=script, is_ready=False) as chat:
        await chat.phase(Phase.LOADING)
        await chat.press("ctrl+q")
        await chat.until(lambda: chat.app._exit)
        assert not chat.engine.is_alive


async def test_a_message_typed_while_loading_is_sent_after(open_chat: OpenChat) -> None:
    script = Script(replies=(Reply(answer="Yes."),), is_load_held=True)
    async with open_chat(script=script, is_ready=False) as chat:
        await chat.phase(Phase.LOADING)
        await chat.send("early")
        assert "waits: early" in chat.picture()
        chat.engine.send(Cancel(request_id=999))  # any command lets the load go on
        await chat.until(lambda: "Yes." in chat.transcript())


async def test_reasoning_folds_and_answer_now_ends_it(open_chat: OpenChat) -> None:
    reply = Reply(answer="Done.", thinking=LONG, holds=(2,))
    async with open_chat(reply) as chat:
        await chat.press("ctrl+t")
        assert chat.chat.think is ThinkMode.HIGH
        await chat.send("think")
        await chat.steps(2)
        assert chat.chat.is_reasoning
        await chat.until(lambda: "^T answer now" in chat.picture())
        await chat.press("ctrl+t")
        await chat.until(lambda: not chat.chat.is_busy)
        assert len(chat.engine.sent(StopThinking)) == 1
        assert "Done." in chat.transcript()
        assert "▸ thought" in chat.transcript()
        assert " tok · ended by you" in chat.transcript()
        view = chat.screen.transcript
        view.set_colour_mode(ColourMode.SOURCE)
        strips = view.render_lines(Region(0, 0, *view.size))
        found = [segment for strip in strips for segment in strip]
        ended = next(part.style for part in found if part.text == "ended by you")
        assert ended is not None
        assert ended.reverse
        await chat.press("ctrl+o")
        assert "Some words that fill" in chat.transcript()


async def test_markup_and_escapes_are_shown_as_written(open_chat: OpenChat) -> None:
    hostile = "[/red] [bold [0] [@click=app.quit]x[/] [link=http://x]y"
    reply = Reply(
        answer=hostile + " \x1b[31mred", warning=Failure(message="[/red] \x1b[2J"), accepts=(0,)
    )
    async with open_chat(reply, size=(120, 40)) as chat:
        await chat.ask(hostile + "\x1b]0;t\x07")
        text = chat.transcript()
        assert text.count("[/red] [bold [0] [@click=app.quit]x[/]") == 2
        assert "[link=http://x]y" in text
        assert "\x1b" not in chat.picture()
        assert "\x07" not in chat.picture()
        assert "␛[31mred" in text
        assert "[/red] ␛[2J" in text


async def test_a_paste_of_5000_lines_is_one_draft(open_chat: OpenChat) -> None:
    lines = "\r\n".join(f"line {n} [/red]" for n in range(5_000))
    async with open_chat() as chat:
        await chat.paste(lines)
        assert chat.prompt.text == lines.replace("\r\n", "\n")
        assert chat.engine.sent(Submit) == []
        assert chat.prompt.size.height <= 10
        await chat.press("enter")
        await chat.until(lambda: chat.engine.sent(Submit))
        assert chat.engine.sent(Submit)[0].messages[0].text.count("\n") == 4_999


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
async def test_newline_keys_do_not_send(open_chat: OpenChat, key: str) -> None:
    async with open_chat() as chat:
        await chat.press("a", key, "b")
        assert chat.prompt.text == "a\nb"
        assert chat.engine.sent(Submit) == []


async def test_keys_that_come_in_one_burst_lose_nothing(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        for character in "one\ntwo\n/stats\nrest":
            key = "enter" if character == "\n" else character
            chat.prompt.post_message(events.Key(key, None if key == "enter" else character))
        await chat.until(lambda: len(chat.engine.sent(Submit)) == 2)
        questions = [submit.messages[-1].text for submit in chat.engine.sent(Submit)]
        assert questions == ["one", "two"]
        assert "Context:" in chat.transcript()
        assert chat.prompt.text == "rest"


async def test_history(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("one")
        await chat.ask("two\nlines")
        await chat.press("d")
        await chat.press("up")
        assert chat.prompt.text == "two\nlines"
        await chat.press("up", "up")
        assert chat.prompt.text == "one"
        await chat.press("down", "down", "down")
        assert chat.prompt.text == "d"


async def test_no_color_keeps_attributes(
    open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    options = ChatOptions(is_animated=False, no_color=True)
    async with open_chat(Reply(answer=LONG), size=(120, 40), options=options) as chat:
        await chat.ask("go")
        strips = chat.app.screen._compositor.render_strips(chat.app.size)
        styles = [s.style for strip in strips for s in strip if s.style and s.text.strip()]
        assert all(style.color is None or style.color.is_default for style in styles)
        assert any(style.underline for style in styles)
        assert any(style.bold for style in styles)


@pytest.mark.parametrize("keys", [("ctrl+q",), ("ctrl+d",), ("ctrl+c", "ctrl+c")])
async def test_keys_that_quit(open_chat: OpenChat, keys: tuple[str, ...]) -> None:
    async with open_chat() as chat:
        await chat.press(*keys)
        await chat.until(lambda: not chat.app.is_running or chat.app._exit)
        assert not chat.engine.is_alive


async def test_ctrl_c_copies_then_stops_then_warns(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.paste("some words")
        chat.prompt.select_all()
        await chat.press("ctrl+c")
        assert chat.app.clipboard == "some words"
        assert chat.chat.is_busy
        chat.prompt.load("")
        await chat.press("ctrl+c")
        await chat.until(lambda: not chat.chat.is_busy)
        assert chat.chat.conversation.turns[0].reason is FinishReason.CANCELLED
        await chat.press("ctrl+c")
        assert "Press Ctrl+C again to quit" in chat.hints()
        assert chat.app.is_running


async def test_ctrl_d_in_a_filled_prompt_deletes(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("a", "b", "home", "ctrl+d")
        assert chat.prompt.text == "b"
        assert chat.engine.is_alive


async def test_quitting_in_mid_reply_ends_the_engine(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.press("ctrl+q")
        await chat.until(lambda: chat.app._exit)
        assert not chat.engine.is_alive


async def test_help_opens_and_gives_the_focus_back(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("f1")
        assert isinstance(chat.app.screen, HelpScreen)
        picture = chat.picture()
        assert "fallback" in picture
        await chat.press("escape")
        assert chat.app.screen_stack[-1] is chat.screen
        assert chat.prompt.has_focus


async def test_help_does_not_stop_the_stream(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG, holds=(1,))) as chat:
        await chat.send("go")
        await chat.steps(1)
        await chat.press("f1")
        chat.engine.send(SetSpeculation(request_id=999, spec=chat.chat.spec))
        await chat.until(lambda: not chat.chat.is_busy)
        await chat.press("escape")
        assert chat.engine.sent(Cancel) == []
        assert "── " in chat.transcript()


async def test_typing_goes_to_the_prompt_wherever_the_focus_is(open_chat: OpenChat) -> None:
    async with open_chat(Reply(answer=LONG)) as chat:
        await chat.ask("go")
        chat.screen.transcript.focus()
        await chat.press("x")
        assert chat.prompt.has_focus
        assert chat.prompt.text == "x"
