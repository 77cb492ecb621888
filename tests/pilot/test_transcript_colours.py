"""Colours on screen: every letter has that of its token, at every moment of a stream."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import chain, count

import pytest
from rich.style import Style

from ds4chat.protocol.types import Channel, Source
from ds4chat.tui.palette import DARK, ColourMode
from ds4chat.tui.widgets.transcript import Transcript
from tests.pilot.transcript_host import (
    picture,
    screen_text,
    span,
    spans_of,
    transcript,
)

SOURCE_OF_COLOUR = {colour: source for source, colour in DARK.sources.items()}


# A document whose letters are all different, so that each names its place in the source.


class Letters:
    """Words of letters never used before: narrow, wide, with combining marks, joined."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        ranges = [(0x100, 0x180), (0x3B1, 0x3CA), (0x410, 0x450), (0x531, 0x556)]
        ranges += [(0x10D0, 0x10F0), (0x1E00, 0x1EFF), (0x13A0, 0x13F0), (0x1401, 0x1676)]
        self._narrow = chain.from_iterable(range(*ends) for ends in ranges)
        self._wide = count(0x4E00)
        self._emoji = iter(range(0x1F400, 0x1F4F0))

    def word(self) -> str:
        return "".join(self._letter() for _ in range(self._rng.randint(1, 7)))

    def words(self) -> str:
        return " ".join(self.word() for _ in range(self._rng.randint(1, 6)))

    def _next(self, kind: Iterator[int]) -> str:
        return chr(next(kind, 0) or next(self._wide))

    def _letter(self) -> str:
        dice = self._rng.random()
        if dice < 0.1:
            return chr(next(self._wide))
        if dice < 0.14:
            return self._next(self._narrow) + "\u0301\u0323"
        if dice < 0.17:
            return self._next(self._emoji) + "\u200d" + self._next(self._emoji)
        if dice < 0.19:
            return self._next(self._emoji) + "\ufe0f"
        return self._next(self._narrow)


FORMS = (
    "{}", "{}", "**{}**", "*{}*", "`{}`", "~~{}~~", "[{}](http://{})", "<http://{}>",
    "{} &amp; {}", r"\*{}\*", "***{}** {}*", "`` {} ``", "{}  \n{}", "{}\n{}",
)  # fmt: skip
# T: inline text, L: the same on one line, W: plain words.
BLOCKS = (
    "T\n\n",
    "T\n\n",
    "# L\n",
    "### L\n",
    "- L\n- L\n  1. L\n     - L\n\n- L\n\n",
    "```W\n```\n",
    "```W\n\tW\n\tW\n  W\n```\n",
    "> L\n> - L\n>\n> L\n\n",
    "| C | C |\n|:--|--:|\n| C | C |\n| C | C \\| C |\n\n",
    "7) L\n8) T\n\n---\n",
    "    W\n\n",
)


def inline(rng: random.Random, letters: Letters) -> str:
    form = rng.choice(FORMS)
    return form.format(
        *(letters.word() if "http" in form else letters.words() for _ in range(2))
    )


def blocks(rng: random.Random, letters: Letters) -> Iterator[str]:
    """Seven random blocks."""

    def fill(match: re.Match[str]) -> str:
        if match[0] == "W":
            return letters.words()
        text = " ".join(inline(rng, letters) for _ in range(rng.randint(1, 3)))
        if match[0] == "T":
            return text
        return text.replace("  \n", " ").replace("\n", " ")

    for _ in range(7):
        yield re.sub("[TLWC]", fill, rng.choice(BLOCKS))


def check_picture(widget: Transcript, source: str, sources: list[Source]) -> None:
    """Every letter of the source is on screen once, in the colour of its last code point."""
    place = {char: at for at, char in enumerate(source) if ord(char) >= 0x100}
    unseen = {char for char in place if char.isalpha() or ord(char) >= 0x1F400}
    for row in picture(widget):
        for grapheme, style in row:
            if grapheme[0] not in unseen:
                assert grapheme.isspace() or grapheme[0] not in place or grapheme == "•"
                continue
            at = place[grapheme[0]]
            assert source[at : at + len(grapheme)] == grapheme
            unseen -= set(grapheme)
            expected = sources[at + len(grapheme) - 1]
            assert style.color is not None
            assert SOURCE_OF_COLOUR[style.color.name] is expected, (grapheme, source[:at][-20:])
            check_attribute(style, expected)
    assert not unseen


def check_attribute(style: Style, source: Source) -> None:
    wanted = {
        Source.ACCEPTED: True,
        Source.FALLBACK: style.underline,
        Source.BONUS: style.bold,
        Source.PLAIN: style.italic,
        Source.FORCED: style.reverse,
    }
    assert wanted[source]


@pytest.mark.parametrize(("seed", "width"), [(1, 40), (2, 70), (3, 100), (4, 53), (5, 30)])
async def test_every_letter_has_its_tokens_colour_at_every_flush(seed: int, width: int) -> None:
    rng = random.Random(seed)
    text = "".join(blocks(rng, Letters(rng)))
    spans = spans_of(text, rng)
    async with transcript(width, 300) as widget:
        widget.begin_reply(1)
        done, seen, sources = 0, "", list[Source]()
        while done < len(spans):
            batch = spans[done : done + rng.randint(3, 37)]
            done += len(batch)
            widget.append(1, Channel.ANSWER, batch)
            for item in batch:
                seen += item.text
                sources += [item.token.source] * len(item.text)
            widget.flush()
            check_picture(widget, seen, sources)
        widget.finish_reply(1, "")
        check_picture(widget, seen, sources)


async def test_another_colour_mode_changes_no_character() -> None:
    rng = random.Random(8)
    text = "".join(blocks(rng, Letters(rng)))
    async with transcript(60, 100) as widget:
        widget.append(1, Channel.ANSWER, spans_of(text, rng))
        widget.finish_reply(1, "12 tok")
        colours = set()
        shown = {screen_text(widget)}
        for mode in ColourMode:
            widget.set_colour_mode(mode)
            shown.add(screen_text(widget))
            colours.add(tuple(style.color for row in picture(widget) for _, style in row))
        assert len(shown) == 1
        assert len(colours) == len(ColourMode)


async def test_cost_of_a_flush_does_not_grow() -> None:
    async with transcript(80, 24) as widget:
        rng = random.Random(3)
        text = "".join("".join(blocks(rng, Letters(rng))) for _ in range(12))
        widget.append(1, Channel.ANSWER, [span(text)])
        widget.flush()
        view = widget._views[1, Channel.ANSWER]
        costs = []
        for word in ["some ", "words ", "and\n\n", "more "] * 20:
            before = view.reply.n_parsed
            widget.append(1, Channel.ANSWER, [span(word)])
            widget.flush()
            costs.append(view.reply.n_parsed - before)
        assert max(costs) < 400
        assert len(text) > 4000
