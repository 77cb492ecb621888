"""A screen with one transcript, and what can be read from it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.cells import split_graphemes
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot

from ds4chat.protocol.types import Source, Span, Token
from ds4chat.tui.widgets.transcript import Transcript


class Host(App[None]):
    """Holds one transcript."""

    def compose(self) -> ComposeResult:
        yield Transcript()


@asynccontextmanager
async def transcript(width: int = 80, height: int = 24) -> AsyncIterator[Transcript]:
    async with opened(width, height) as (widget, _):
        yield widget


@asynccontextmanager
async def opened(width: int, height: int) -> AsyncIterator[tuple[Transcript, Pilot[None]]]:
    app = Host()
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        yield app.query_one(Transcript), pilot


def span(text: str, source: Source = Source.PLAIN, position: int = 0) -> Span:
    token = Token(id=7, source=source, round=1, position=position, confidence=0.5, margin=1.0)
    return Span(text=text, token=token)


def spans_of(text: str, rng: random.Random, longest: int = 4) -> list[Span]:
    """Random cuts, a random source for each token (runs of one kind would hide errors)."""
    spans, at = [], 0
    while at < len(text):
        n = rng.randint(1, longest)
        spans.append(span(text[at : at + n], rng.choice(list(Source))))
        at += n
    return spans


def picture(widget: Transcript) -> list[list[tuple[str, Style]]]:
    """Graphemes and styles per row, as they go to the terminal."""
    size = widget.size
    rows = []
    for strip in widget.render_lines(Region(0, 0, size.width, size.height)):
        row = []
        for text, style, _ in strip:
            for start, end, _ in split_graphemes(text)[0]:
                row.append((text[start:end], style or Style()))
        rows.append(row)
    return rows


def screen_text(widget: Transcript) -> str:
    return "\n".join("".join(g for g, _ in row).rstrip() for row in picture(widget)).rstrip()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
