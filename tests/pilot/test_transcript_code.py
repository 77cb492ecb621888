"""Syntax colours: only without provenance, only of replies that have ended."""

from __future__ import annotations

import random

import pytest

from ds4chat.protocol.types import Channel
from ds4chat.tui.markdown.block import Block
from ds4chat.tui.palette import ColourMode
from ds4chat.tui.widgets import transcript_code
from ds4chat.tui.widgets.transcript import Transcript
from tests.pilot.transcript_host import picture, screen_text, span, spans_of, transcript

CODE = 'def f(x):\n    # note\n    return "ü" + str(12)\n'
TEXT = f"Look:\n\n```python\n{CODE}```\n\nend"


def colour_of(widget: Transcript, text: str) -> str | None:
    for row in picture(widget):
        line = "".join(grapheme for grapheme, _ in row)
        if text in line:
            colour = row[line.rindex(text)][1].color
            return colour.name if colour else None
    raise AssertionError(f"{text!r} is not on screen")


def colours(widget: Transcript) -> list[str | None]:
    return [colour_of(widget, text) for text in ("def", "# note", '"ü"', "12", "f(x)", "(x)")]


async def test_code_has_the_colours_of_its_syntax_only_without_provenance() -> None:
    async with transcript(60, 20) as widget:
        widget.append(1, Channel.ANSWER, [span(TEXT)])
        widget.finish_reply(1, "")
        assert len(set(colours(widget))) == 1
        shown = screen_text(widget)
        widget.set_colour_mode(ColourMode.OFF)
        assert len(set(colours(widget))) == 6
        assert screen_text(widget) == shown
        assert colour_of(widget, "python") == colour_of(widget, "(x)")


async def test_a_growing_fence_is_not_lexed(monkeypatch: pytest.MonkeyPatch) -> None:
    lexed: list[str] = []
    original = transcript_code._pieces

    def noting(block: Block) -> list[tuple[int, int, str]]:
        lexed.append(block.text[block.code_at :])
        return original(block)

    monkeypatch.setattr(transcript_code, "_pieces", noting)
    async with transcript(60, 20) as widget:
        widget.set_colour_mode(ColourMode.OFF)
        for part in TEXT.split("\n"):
            widget.append(1, Channel.ANSWER, [span(part + "\n")])
            widget.flush()
            picture(widget)
        assert not lexed
        widget.finish_reply(1, "")
        for _ in range(3):
            picture(widget)
            widget.set_colour_mode(ColourMode.OFF)
        assert lexed == [CODE.rstrip("\n")]


@pytest.mark.parametrize(
    "label", ["nonsense", "python title=x", "../../etc", "html", "[/red]", "PYTHON", "console"]
)
async def test_any_label_and_any_cut_changes_no_character(label: str) -> None:
    rng = random.Random(label)
    parts = ["x = '", "\t<b>", "# ", '"""', "\\", "\n", "字 "]
    lines = "".join(rng.choices(parts, k=300))
    async with transcript(50, 400) as widget:
        widget.append(1, Channel.ANSWER, spans_of(f"```{label}\n{lines}\n```\n", rng))
        widget.finish_reply(1, "")
        shown = screen_text(widget)
        widget.set_colour_mode(ColourMode.OFF)
        assert screen_text(widget) == shown


async def test_long_code_is_lexed_by_chunks_and_no_more_than_is_seen() -> None:
    async with transcript(60, 20) as widget:
        code = "".join(f"value_{n} = {n}\n" for n in range(4_000))
        widget.append(1, Channel.ANSWER, [span(f"```python\n{code}```\n")])
        widget.finish_reply(1, "")
        widget.set_colour_mode(ColourMode.OFF)
        picture(widget)
        assert len(widget._painter._code._kept) <= 2
        assert colour_of(widget, "3999") != colour_of(widget, "value_3999")


async def test_without_colours_code_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with transcript(60, 20) as widget:
        widget.append(1, Channel.ANSWER, [span(TEXT)])
        widget.finish_reply(1, "")
        widget.set_colour_mode(ColourMode.OFF)
        assert len(set(colours(widget))) == 1
