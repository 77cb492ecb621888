"""Searching, marking turns, asking about tokens, ghosts: on the transcript alone."""

from __future__ import annotations

import random

import pytest
from rich.style import Style

from ds4chat.protocol.types import Channel, Source, Span, Token
from ds4chat.tui.palette import ColourMode
from ds4chat.tui.widgets.transcript import Transcript
from ds4chat.tui.widgets.transcript_search import Found
from ds4chat.tui.widgets.transcript_tools import TokenPlace
from tests.pilot.test_transcript_colours import Letters, blocks
from tests.pilot.transcript_host import opened, picture, screen_text, span, spans_of, transcript


def drafted(text: str, number: int, position: int, source: Source = Source.ACCEPTED) -> Span:
    return Span(
        text=text,
        token=Token(
            id=5, source=source, round=number, position=position, confidence=0.5, margin=1.5
        ),
    )


def styles(widget: Transcript, text: str) -> list[Style]:
    """Styles of the graphemes of the first place on screen that shows a text."""
    for row in picture(widget):
        line = "".join(grapheme for grapheme, _ in row)
        at = line.find(text)
        if at >= 0:
            return [style for _, style in row[at : at + len(text)]]
    raise AssertionError(f"{text!r} is not on screen")


@pytest.mark.parametrize(("width", "ending"), [(80, " ──"), (30, "")])
async def test_the_receipts_last_rule_goes_before_it_wraps(width: int, ending: str) -> None:
    async with transcript(width, 10) as widget:
        widget.append(1, Channel.ANSWER, [span("yo")])
        widget.finish_reply(1, "2 tok · 50.0 tok/s ·")
        assert screen_text(widget).split("\n")[-1] == f"     ── 2 tok · 50.0 tok/s ·{ending}"


async def test_a_receipt_is_laid_out_again_when_the_width_changes() -> None:
    wide = "     ── 2 tok · 50.0 tok/s · saved 1.0 s ──"
    narrow = "     ── 2 tok · 50.0 tok/s\n        saved 1.0 s"
    async with opened(80, 10) as (widget, pilot):
        widget.append(1, Channel.ANSWER, [span("yo")])
        widget.finish_reply(1, "2 tok · 50.0 tok/s · saved 1.0 s")
        assert screen_text(widget).endswith(wide)
        for columns, text in ((36, narrow), (60, wide), (36, narrow)):
            await pilot.resize_terminal(columns, 10)
            await pilot.pause()
            assert screen_text(widget).rstrip().endswith(text)


async def test_search_marks_all_hits_and_goes_round() -> None:
    async with opened(50, 10) as (widget, pilot):
        widget.add_user("find the NEEDLE here", 1)
        lines = [
            span(f"line **nee**dle {n}\n\n" if n % 10 == 0 else f"{n}\n\n") for n in range(31)
        ]
        widget.append(1, Channel.ANSWER, lines)
        widget.finish_reply(1, "needle")  # remarks of the program are not searched
        await pilot.pause()
        widget.scroll_to(y=0, animate=False)
        await pilot.pause()
        assert widget.search("needle") == Found(5, 1)
        grounds = {style.bgcolor for style in styles(widget, "NEEDLE")}
        assert grounds == {widget.get_component_rich_style("transcript--hit-current").bgcolor}
        assert styles(widget, "needle")[0].bgcolor not in grounds
        assert [widget.search_step(1).current for _ in range(5)] == [2, 3, 4, 5, 1]
        assert "NEEDLE" in screen_text(widget)
        assert widget.search_step(-1) == Found(5, 5)
        assert "needle 30" in screen_text(widget)
        assert widget.search("") == Found(0, 0)
        plain = widget.get_component_rich_style("transcript--answer").bgcolor
        assert styles(widget, "needle 30")[0].bgcolor == plain


async def test_search_opens_folded_reasoning_at_a_hit_and_folds_it_again() -> None:
    async with transcript(60, 30) as widget:
        for turn in (1, 2):
            widget.append(turn, Channel.THINKING, [span(f"word and **Wo**rd {turn}")])
            widget.append(turn, Channel.ANSWER, [span("a word.")])
            widget.finish_reply(turn, "")
        folded = screen_text(widget)
        assert "and" not in folded
        assert widget.search("word") == Found(6, 1)
        assert "word and Word 1" in screen_text(widget)
        assert "Word 2" not in screen_text(widget)
        current = widget.get_component_rich_style("transcript--hit-current").bgcolor
        assert {style.bgcolor for style in styles(widget, "word")} == {current}
        assert widget.search_step(1) == Found(6, 2)
        assert {style.bgcolor for style in styles(widget, "Word 1")[:4]} == {current}
        assert widget.search_step(1) == Found(6, 3)
        assert screen_text(widget) == folded
        assert widget.search_step(-1) == Found(6, 2)
        assert "word and Word 1" in screen_text(widget)
        assert widget.search_step(3) == Found(6, 5)
        assert "and Word 1" not in screen_text(widget)
        assert "word and Word 2" in screen_text(widget)
        assert widget.search("") == Found(0, 0)
        assert "word and Word 2" in screen_text(widget)
        assert widget.search("a word") == Found(2, 1)


async def test_search_finds_what_comes_and_no_pattern() -> None:
    async with transcript(60, 20) as widget:
        widget.append(1, Channel.ANSWER, [span("a word.")])
        widget.finish_reply(1, "")
        assert widget.search("word") == Found(1, 1)
        widget.append(2, Channel.ANSWER, [span("word [x")])
        widget.finish_reply(2, "")
        assert widget.search_step(1) == Found(2, 2)
        assert widget.search("[x") == Found(1, 1)
        assert widget.search_step(1) == Found(1, 1)
        assert widget.search("nowhere") == Found(0, 0)


async def test_a_bar_beside_the_marked_turn() -> None:
    async with opened(40, 24) as (widget, pilot):
        for turn in (1, 2, 3):
            widget.add_user(f"question {turn}", turn)
            widget.append(turn, Channel.ANSWER, [span("words\n\n" * 3)])
            widget.finish_reply(turn, "3 tok")
        await pilot.pause()
        assert widget.turn_ids == [1, 2, 3]
        widget.mark_turn(2)
        await pilot.pause()
        marked = [line for line in screen_text(widget).split("\n") if line[3:4] == "▌"]
        assert marked[0].strip() == "▌"
        assert marked[1] == "you▌ question 2"
        assert marked[-1] == "   ▌ ── 3 tok ──"
        assert len(marked) == 9
        widget.mark_turn(None)
        assert "▌" not in screen_text(widget)


async def test_turns_can_be_removed_from_the_end() -> None:
    async with transcript(60, 30) as widget:
        for turn in (1, 2, 3):
            widget.add_user(f"question {turn}", turn)
            widget.append(turn, Channel.THINKING, [span("hm")])
            widget.append(turn, Channel.ANSWER, [span("words")])
            widget.finish_reply(turn, "3 tok")
        before = screen_text(widget)
        widget.mark_turn(3)
        widget.remove_from(2)
        assert screen_text(widget) == before[: before.index("you  question 2")].rstrip()
        assert widget.turn_ids == [1]
        assert widget.marked_turn is None
        assert not widget.turn_source(2, Channel.ANSWER)
        widget.remove_from(7)
        widget.add_user("question 2", 4)
        assert "question 2" in screen_text(widget)


async def test_a_click_names_the_token_under_it() -> None:
    async with opened(60, 12) as (widget, pilot):
        clicked: list[TokenPlace] = []
        widget.post_message = _catch(widget, clicked)  # type: ignore[method-assign]
        widget.add_user("ask", 1)
        spans = [span("one "), span("**two**"), span(" 三"), span("four", Source.ACCEPTED, 1)]
        widget.append(1, Channel.ANSWER, spans)
        widget.finish_reply(1, "4 tok")
        await pilot.pause()
        assert screen_text(widget).split("\n")[2] == "ds4  one two 三four"
        for x in (5, 9, 13, 14, 15):
            await pilot.click(Transcript, offset=(x, 2))
        for nowhere in ((2, 2), (40, 2), (6, 0), (6, 3), (6, 9)):
            await pilot.click(Transcript, offset=nowhere)
        assert [place.token for place in clicked] == [0, 1, 2, 2, 3]
        assert clicked[0][:2] == (1, Channel.ANSWER)


def _catch(widget: Transcript, clicked: list[TokenPlace]):  # type: ignore[no-untyped-def]
    original = widget.post_message

    def post(message):  # type: ignore[no-untyped-def]
        if isinstance(message, Transcript.TokenClicked):
            clicked.append(message.place)
        return original(message)

    return post


async def test_facts_of_a_token() -> None:
    async with transcript(60, 12) as widget:
        first = [drafted("a", 0, 0, Source.PLAIN), drafted("b", 3, 1), drafted("", 3, 2)]
        widget.append(1, Channel.THINKING, first, at_s=1.5)
        second = [drafted("c", 4, 0, Source.FALLBACK), drafted("d\n", 4, 1)]
        widget.append(1, Channel.ANSWER, second, at_s=2.5)
        widget.finish_reply(1, "")
        facts = [
            widget.token_facts(TokenPlace(1, channel, token))
            for channel, token in [
                (Channel.THINKING, 0),
                (Channel.THINKING, 1),
                (Channel.ANSWER, 0),
                (Channel.ANSWER, 1),
            ]
        ]
        assert [f.text for f in facts] == ["a", "b", "c", "d\n"]
        assert [f.round for f in facts] == [0, 3, 3, 4]
        assert [f.at_s for f in facts] == [1.5, 1.5, 2.5, 2.5]
        assert facts[1].confidence == pytest.approx(0.5, abs=0.003)
        assert facts[2].margin == 1.5
        assert widget.text_after_round(1, 3) is None  # the last of its channel
        assert widget.text_after_round(1, 9) is None


GHOSTLY = (
    "one ",
    "**two** ",
    "three\n\n- ",
    "item\n\n```py\nx ",
    "= 1\n```\n\n| a",
    " | b |\n|---|---|\n| c | d |\n\nend",
)


async def test_ghosts_stand_struck_before_the_token_that_came_instead() -> None:
    async with transcript(60, 30) as widget:
        spans = [drafted(text, number, 1) for number, text in enumerate(GHOSTLY, start=1)]
        widget.append(1, Channel.ANSWER, spans)
        widget.finish_reply(1, "6 tok")
        before = screen_text(widget)
        widget.set_ghosts(1, {1: "uno\n", 3: "ding", 4: "y\x1b", 5: "wrong", 6: "fin"})
        shown = screen_text(widget)
        for wanted in ("one uno↵two", "• dingitem", "x y␛= 1", "endfin"):
            assert wanted in shown, shown
        assert "wrong drafts in the table: wrong" in shown
        assert all(style.strike for style in styles(widget, "uno↵"))
        assert not any(style.strike for style in styles(widget, "two"))
        assert widget.turn_source(1, Channel.ANSWER) == "".join(GHOSTLY)
        assert widget.search("uno") == Found(0, 0)
        assert widget.has_ghosts(1)
        widget.set_ghosts(2, None)
        assert screen_text(widget) == before
        assert not widget.has_ghosts(1)


@pytest.mark.parametrize("seed", range(6))
async def test_ghosts_change_no_character_of_the_reply(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(blocks(rng, Letters(rng)))
    async with transcript(90, 400) as widget:
        plain = spans_of(text, rng)
        spans = [drafted(s.text, n, 1, s.token.source) for n, s in enumerate(plain, start=1)]
        widget.append(1, Channel.ANSWER, spans)
        widget.finish_reply(1, "")

        def letters(*, ghosts: bool) -> str:
            shown = [
                (g, bool(s.strike and g in "QZ↵")) for row in picture(widget) for g, s in row
            ]
            return "".join(g for g, is_ghost in shown if g.strip() and is_ghost is ghosts)

        before = letters(ghosts=False)
        chosen = {
            n: rng.choice(["Q", "Q Z", "Q\nZ"]) for n in rng.sample(range(1, len(spans)), 40)
        }
        widget.set_ghosts(1, chosen)
        after = letters(ghosts=False).replace("wrongdraftsinthetable:", "")
        assert after.replace(",", "").replace("┃", "") == before.replace(",", "").replace(
            "┃", ""
        )
        n_wanted = sum(len(text.replace(" ", "")) for text in chosen.values())
        assert len(letters(ghosts=True)) == n_wanted
        widget.set_colour_mode(ColourMode.OFF)
        assert len(letters(ghosts=True)) == n_wanted


@pytest.mark.parametrize("seed", range(6))
async def test_ghosts_of_a_growing_reply_stand_where_they_will_stand(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(blocks(rng, Letters(rng)))
    plain = spans_of(text, rng, 9)
    spans = [drafted(s.text, n // 3 + 1, 1, s.token.source) for n, s in enumerate(plain)]
    n_rounds = len(spans) // 3 + 1
    wrong = {n: rng.choice(["Q", "Q Z", "Q\nZ"]) for n in rng.sample(range(1, n_rounds), 20)}
    async with transcript(60, 300) as widget:
        known: dict[int, str] = {}
        widget.set_ghosts(1, known)
        while spans:
            n = rng.randint(1, 7)
            widget.append(1, Channel.ANSWER, spans[:n])
            reached = max(s.token.round for s in spans[:n])
            late = rng.randint(0, 1)  # a round may be told after its tokens
            known.update({r: text for r, text in wrong.items() if r <= reached - late})
            spans = spans[n:]
            widget.flush()
            shown = screen_text(widget)
            widget.set_ghosts(1, dict(known))
            assert screen_text(widget) == shown
            widget.set_ghosts(1, known)
        known.update(wrong)
        widget.finish_reply(1, "")
        shown = screen_text(widget)
        assert shown.count("Q") == len(wrong)
        widget.set_ghosts(1, None)
        widget.set_ghosts(1, wrong)
        assert screen_text(widget) == shown


async def test_ghosts_are_shown_in_channels_that_begin_later_and_in_folded_ones() -> None:
    async with transcript(60, 30) as widget:
        widget.set_ghosts(1, {1: "uno", 2: "dos", 3: "tres"})
        assert widget.has_ghosts(1)
        widget.append(1, Channel.THINKING, [drafted("one ", 1, 1), drafted("two ", 2, 1)])
        widget.append(1, Channel.ANSWER, [drafted("first ", 3, 1), drafted("next", 4, 1)])
        widget.flush()
        assert "first tresnext" in screen_text(widget)
        widget.toggle_fold()
        assert "one unotwodos" in screen_text(widget)
        widget.clear()
        assert not widget.has_ghosts(1)


async def test_ghosts_keep_the_top_line() -> None:
    async with opened(40, 10) as (widget, pilot):
        spans = [
            drafted(f"paragraph {n} with some words in it\n\n", n + 1, 1) for n in range(40)
        ]
        widget.append(1, Channel.ANSWER, spans)
        widget.finish_reply(1, "")
        await pilot.pause()
        widget.scroll_to(y=40, animate=False)
        await pilot.pause()
        top = screen_text(widget).split("\n")[0]
        assert "paragraph" in top
        widget.set_ghosts(
            1, dict.fromkeys(range(1, 40), "a long ghost that fills a line alone")
        )
        await pilot.pause()
        number = top.split()[top.split().index("paragraph") + 1]
        assert f"paragraph {number}" in "\n".join(screen_text(widget).split("\n")[:3])
        widget.set_ghosts(1, None)
        await pilot.pause()
        assert screen_text(widget).split("\n")[0] == top
