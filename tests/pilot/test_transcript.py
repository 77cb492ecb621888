"""The transcript widget: what is on screen, scrolling, folding, copying."""

from __future__ import annotations

import io

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.drivers._writer_thread import WriterThread
from textual.geometry import Region
from textual.pilot import Pilot

from ds4chat.protocol.types import Channel, Source
from ds4chat.tui.markdown.clean import clean
from ds4chat.tui.palette import DARK, ColourMode
from ds4chat.tui.widgets.transcript import Transcript
from ds4chat.tui.widgets.transcript_pace import Pace, queued_writes
from tests.pilot.transcript_host import (
    Clock,
    opened,
    picture,
    screen_text,
    span,
    transcript,
)

HOSTILE = [
    "[/]", "[/red]", "[bold", "[0]", "[1, 2]", "[red]x[/red]", "[link=http://e]x[/link]",
    "[@click=app.quit]x[/]", "\x1b[31mred", "\x1b]8;;http://e\x1b\\x", "\x9b2J", "a\x00b",
    "\u202eabc", "\x7f", "\ud800", "<b>x</b>", "\r", "{x}", "$primary", ":smile:",
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_text_is_shown_as_written_and_can_do_nothing(hostile: str) -> None:
    async with transcript(60, 20) as widget:
        widget.add_user(hostile, 1)
        for channel in (Channel.THINKING, Channel.ANSWER):
            widget.append(1, channel, [span(char) for char in hostile])
        widget.finish_reply(1, hostile)
        widget.set_folded(1, False)
        widget.add_notice(hostile, "warning")
        shown = clean(hostile)
        assert screen_text(widget).count(shown) >= (4 if shown == hostile else 3)
        for row in picture(widget):
            for grapheme, style in row:
                assert grapheme.isprintable()
                assert not style.link
                assert not style.meta


async def test_control_code_entities_and_links_do_nothing() -> None:
    async with transcript(70, 20) as widget:
        text = "&#27;[31m &#x202e; &#8232; &Tab;x&NewLine;y [a](http://b.example) ![c](d)"
        widget.append(1, Channel.ANSWER, [span(text)])
        widget.finish_reply(1, "")
        for row in picture(widget):
            for grapheme, style in row:
                assert grapheme.isprintable()
                assert not style.link
        assert "a (http://b.example) !c (d)" in screen_text(widget)


async def test_reading_above_is_not_disturbed_by_new_lines() -> None:
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span(f"line {n}\n\n") for n in range(40)])
        widget.flush()
        await pilot.pause()
        assert widget.scroll_y == widget.max_scroll_y > 0
        widget.scroll_page_up(animate=False)
        await pilot.pause()
        before = screen_text(widget)
        for n in range(40, 75):
            widget.append(1, Channel.ANSWER, [span(f"line {n}\n\n")])
            widget.flush()
            await pilot.pause()
        assert screen_text(widget) == before
        widget.scroll_end(animate=False)
        await pilot.pause()
        assert "line 74" in screen_text(widget)
        widget.append(1, Channel.ANSWER, [span("last\n\n")])
        widget.flush()
        await pilot.pause()
        assert "last" in screen_text(widget)


async def test_a_key_scroll_while_streaming_stops_following() -> None:
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span(f"line {n}\n\n") for n in range(40)])
        widget.flush()
        await pilot.pause()
        widget.focus()
        await pilot.press("pageup")
        assert not widget.is_following
        widget.append(1, Channel.ANSWER, [span("more\n\n")])
        widget.flush()
        await pilot.pause()
        assert widget.scroll_y < widget.max_scroll_y


async def test_the_timer_shows_tokens() -> None:
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span("hello")])
        assert "hello" not in screen_text(widget)
        for _ in range(100):
            await pilot.pause(0.01)
            if "hello" in screen_text(widget):
                break
        assert "hello" in screen_text(widget)


async def test_reasoning_folds_into_its_duration_and_count() -> None:
    clock = Clock()

    class Timed(App[None]):
        def compose(self) -> ComposeResult:
            yield Transcript(clock=clock)

    app = Timed()
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        widget = app.query_one(Transcript)
        widget.append(1, Channel.THINKING, [span("let me ", Source.ACCEPTED), span("think")])
        widget.flush()
        assert "let me think" in screen_text(widget)
        faded = {
            s.color.name for row in picture(widget) for g, s in row if g == "l" and s.color
        }
        assert DARK.sources[Source.ACCEPTED] not in faded
        clock.now += 12.3
        widget.append(1, Channel.ANSWER, [span("answer")])
        widget.flush()
        assert "▸ thought 12.3 s · 2 tok" in screen_text(widget)
        assert "let me think" not in screen_text(widget)
        widget.toggle_fold()
        assert "▾ thought 12.3 s · 2 tok" in screen_text(widget)
        assert "let me think" in screen_text(widget)
        widget.set_folded(1, True)
        assert "let me think" not in screen_text(widget)
        assert widget.turn_source(1, Channel.THINKING) == "let me think"


async def test_folding_and_resizing_keep_the_top_line() -> None:
    async with opened(60, 10) as (widget, pilot):
        widget.append(1, Channel.THINKING, [span(f"thought {n}\n\n") for n in range(20)])
        long = [span(f"paragraph {n} {'word ' * 20}\n\n") for n in range(30)]
        widget.append(1, Channel.ANSWER, long)
        widget.finish_reply(1, "")
        await pilot.pause()
        widget.scroll_to(y=40, animate=False)
        await pilot.pause()
        top = screen_text(widget).split("\n")[0]
        assert "paragraph" in top or "word" in top
        widget.toggle_fold()
        await pilot.pause()
        assert screen_text(widget).split("\n")[0] == top
        number = next(w for w in screen_text(widget).split() if w.isdigit())
        await pilot.resize_terminal(90, 10)
        await pilot.pause()
        assert f"paragraph {number}" in screen_text(widget)


async def test_without_colours_attributes_tell_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with transcript(60, 10) as widget:
        widget.append(
            1,
            Channel.ANSWER,
            [
                span("**a", Source.ACCEPTED),
                span("f", Source.FALLBACK),
                span("b", Source.BONUS),
                span("p", Source.PLAIN),
                span("x**", Source.FORCED),
            ],
        )
        widget.finish_reply(1, "")
        styles = {g: style for row in picture(widget) for g, style in row if g in "afbpx"}
        assert not styles["a"].bold  # Markdown's bold would look like a bonus token
        assert styles["f"].underline
        assert styles["b"].bold
        assert styles["p"].italic
        assert styles["x"].reverse
        widget.set_colour_mode(ColourMode.OFF)
        styles = {g: style for row in picture(widget) for g, style in row if g in "afbpx"}
        assert styles["a"].bold
        assert not styles["f"].underline


async def test_a_slow_terminal_gets_no_more_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [2]
    monkeypatch.setattr("ds4chat.tui.widgets.transcript.queued_writes", lambda _app: waiting[0])
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span("hello")])
        for _ in range(10):
            await pilot.pause(0.02)
        assert "hello" not in screen_text(widget)
        waiting[0] = 1
        for _ in range(100):
            await pilot.pause(0.01)
            if "hello" in screen_text(widget):
                break
        assert "hello" in screen_text(widget)


async def test_queued_writes_reads_the_drivers_queue() -> None:
    async with opened(40, 10) as (widget, _):
        app = widget.app
        assert queued_writes(app) == 0  # a headless driver has no writer
        writer = WriterThread(io.StringIO())  # not started: nothing leaves its queue
        writer.write("a")
        writer.write("b")
        app._driver._writer_thread = writer  # type: ignore[union-attr]
        assert queued_writes(app) == 2


async def test_receipts_notices_and_clearing() -> None:
    async with transcript(60, 20) as widget:
        widget.add_user("hi\r\nthere", 1)
        widget.begin_reply(1)
        widget.append(1, Channel.ANSWER, [span("yo")])
        widget.finish_reply(1, "2 tok · 50.0 tok/s")
        widget.add_notice("parked", "info")
        assert widget.plain_text() == (
            "you  hi\n     there\n\nds4  yo\n     ── 2 tok · 50.0 tok/s ──\n\n     parked"
        )
        assert screen_text(widget) == widget.plain_text()
        assert widget.user_source(1) == "hi\nthere"
        assert widget.turn_source(1, Channel.ANSWER) == "yo"
        widget.clear()
        assert not screen_text(widget)
        assert not widget.turn_source(1, Channel.ANSWER)


def test_the_interval_stretches_with_the_cost() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.delay() == pytest.approx(0.001)
    started = clock.now
    clock.now += 0.002
    pace.note(started)
    assert pace.delay() == pytest.approx(0.05)
    clock.now += 0.03
    assert pace.delay() == pytest.approx(0.02)
    started = clock.now
    clock.now += 0.05
    pace.note(started)
    assert pace.delay() == pytest.approx(0.2)
    clock.now += 9.0
    assert pace.delay() == pytest.approx(0.001)
    pace.skip()
    assert pace.delay() == pytest.approx(0.2)


async def select(pilot: Pilot[None], start: tuple[int, int], end: tuple[int, int]) -> None:
    await pilot.mouse_down(Transcript, offset=start)
    await pilot.hover(Transcript, offset=end)
    await pilot.mouse_up(Transcript, offset=end)
    await pilot.pause()


def marked(widget: Transcript) -> str:
    """Text with the background of the selection."""
    ground = widget.screen.get_component_rich_style("screen--selection").bgcolor
    return "".join(g for row in picture(widget) for g, style in row if style.bgcolor == ground)


async def test_selected_text_is_copied_as_source_and_stays_selected() -> None:
    async with opened(60, 20) as (widget, pilot):
        widget.add_user("ask", 1)
        source = "one **two** three\n\n- four\n- `five` six\n\n"
        widget.append(1, Channel.ANSWER, [span(char) for char in source])
        widget.flush()
        await pilot.pause()
        shown = screen_text(widget).split("\n")
        assert shown[2:] == ["ds4  one two three", "", "     • four", "     • five six"]
        await select(pilot, (9, 2), (10, 5))
        assert marked(widget) == "two three• four• five"
        assert widget.screen.get_selected_text() == "two** three\n\n- four\n- `five"
        widget.append(1, Channel.ANSWER, [span("more text\n\n" * 3)])
        widget.set_colour_mode(ColourMode.OFF)
        widget.flush()
        await pilot.resize_terminal(40, 20)
        await pilot.pause()
        assert marked(widget) == "two three• four• five"
        assert widget.screen.get_selected_text() == "two** three\n\n- four\n- `five"


async def test_whole_blocks_are_copied_with_their_marks() -> None:
    async with opened(60, 20) as (widget, pilot):
        widget.add_user("ask\nagain", 1)
        widget.append(1, Channel.ANSWER, [span("# **T**\n\n> q\n\nend")])
        widget.finish_reply(1, "3 tok")
        await pilot.pause()
        widget.text_select_all()
        await pilot.pause()
        text = widget.screen.get_selected_text()
        assert text == "ask\nagain\n\n# **T**\n\n> q\n\nend\n\n── 3 tok ──"


async def test_folding_drops_the_selection() -> None:
    async with opened(60, 20) as (widget, pilot):
        widget.append(1, Channel.THINKING, [span("thoughts")])
        widget.append(1, Channel.ANSWER, [span("answer")])
        widget.flush()
        await pilot.pause()
        await select(pilot, (5, 2), (8, 2))
        assert marked(widget) == "answ"
        widget.toggle_fold()
        await pilot.pause()
        assert marked(widget) == ""
        assert widget.screen.get_selected_text() is None


async def test_reasoning_that_is_being_read_does_not_fold_away() -> None:
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.THINKING, [span(f"thought {n}\n\n") for n in range(30)])
        widget.flush()
        await pilot.pause()
        widget.scroll_to(y=20, animate=False)
        await pilot.pause()
        before = screen_text(widget)
        widget.append(1, Channel.ANSWER, [span("answer")])
        widget.flush()
        await pilot.pause()
        assert "thought 10" in before
        assert screen_text(widget) == before


async def test_the_wheel_stops_following() -> None:
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span(f"line {n}\n\n") for n in range(40)])
        widget.flush()
        await pilot.pause()
        await pilot._post_mouse_events([events.MouseScrollUp], Transcript, (5, 5))
        assert not widget.is_following


async def test_a_long_transcript_is_wrapped_when_resizing_pauses() -> None:
    async with opened(40, 10) as (widget, pilot):
        words = "many words that fill more than one line "
        widget.append(1, Channel.ANSWER, [span(f"{n} {words}\n\n") for n in range(900)])
        widget.finish_reply(1, "")
        await pilot.pause()
        narrow = widget.plain_text()
        await pilot.resize_terminal(80, 10)
        for _ in range(200):
            await pilot.pause(0.01)
            if widget.plain_text() != narrow:
                break
        assert f"899 {words}".strip() in screen_text(widget)
        assert widget.scroll_y == widget.max_scroll_y


async def test_a_line_that_stays_is_not_painted_again_when_the_view_scrolls() -> None:
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span(f"line {n}\n\n") for n in range(40)])
        widget.flush()
        await pilot.pause()
        before = widget.render_lines(Region(0, 4, 40, 6))
        widget.append(1, Channel.ANSWER, [span("more\n\n")])
        widget.flush()
        await pilot.pause()
        after = widget.render_lines(Region(0, 2, 40, 6))
        assert [strip.text for strip in after[:4]] == [strip.text for strip in before[:4]]
        assert all(a is b for a, b in zip(after[:4], before[:4], strict=True))
        cropped = widget.render_lines(Region(5, 2, 3, 1))[0]
        assert cropped.text == before[0].text[5:8]


async def test_the_scroll_bar_knows_of_a_scroll_before_it_was_shown() -> None:
    async with opened(40, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span(f"line {n}\n\n") for n in range(20)])
        widget.flush()
        widget.finish_reply(1, "")
        await pilot.pause()
        assert widget.scroll_y > 0
        assert widget.vertical_scrollbar.position == widget.scroll_y
