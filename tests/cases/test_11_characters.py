"""Characters of several tokens, drafted and not: the text is whole, and no colour cuts one."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style

from ds4chat.protocol.events import RoundVerified, TokensCommitted
from ds4chat.protocol.types import Channel, FinishReason, Source, Span, ThinkMode
from ds4chat.store.export import export
from ds4chat.store.graphemes import graphemes
from ds4chat.store.library import Library
from ds4chat.store.session import Session
from ds4chat.tui.palette import DARK
from ds4chat.tui.widgets.transcript import Transcript
from tests.grammar import TurnLog, read_turns
from tests.pilot.transcript_host import picture, transcript
from tests.scripted_engine import MISS_EVERY
from tests.unit.engine.test_host import LOAD, Hosting, submit
from tests.unit.store.test_export import LOOK
from tests.unit.text import vocab

TAGGED = "flag of letters"  # invisible ones, which an export does not write
CHARACTERS = {
    "combining mark": "e\u0301",
    "two marks": "a\u0323\u0302",
    "CJK": "漢",
    "emoji": "😀",
    "with a variant": "❤\ufe0f",
    "skin": "👍🏽",
    "family": "👩\u200d👩\u200d👧\u200d👦",
    "joined": "🐦\u200d🔥",
    "keycap": "1\ufe0f\u20e3",
    "flag": "🇩🇪",
    TAGGED: "🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
    "Hangul parts": "\u1112\u1161\u11ab",
    "conjunct": "क्षि",
    "Thai": "น้ำ"[:2],
}
TEXT = " ".join(CHARACTERS.values()) + " 🇩🇪🇫🇷 漢字漢"
SOURCE_OF = {colour: source for source, colour in DARK.sources.items()}


@cache
def said(text: str, n_before: int = 0, **rest: Any) -> tuple[TurnLog, tuple[Any, ...]]:
    """A reply of the host's loop, and its events; every seventh draft is wrong."""
    events = Hosting().run(LOAD, submit("say " + "." * n_before + text, **rest))
    return read_turns(events)[1], tuple(events)


def spans_of(events: tuple[Any, ...]) -> list[Span]:
    return [s for event in events if isinstance(event, TokensCommitted) for s in event.spans]


SHIFTS = range(MISS_EVERY)


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_streamed_text_is_that_of_all_tokens(shift: int) -> None:
    log, events = said(TEXT, shift)
    made = vocab.tokenizer()
    assert log.answer == "." * shift + TEXT == made.decode(list(log.end.ids))
    spans = spans_of(events)
    assert len(spans) > 2 * len(TEXT)
    assert {Source.ACCEPTED, Source.FALLBACK} <= {span.token.source for span in spans}
    assert sum(not span.text for span in spans) > len(TEXT)


def drawn(widget: Transcript) -> list[list[tuple[str, Style]]]:
    """Code points and styles of each row, blanks at the ends left out."""
    rows = [[(c, style) for text, style in row for c in text] for row in picture(widget)]
    return [row for row in rows if any(not c.isspace() for c, _ in row)]


def check_whole(widget: Transcript, owners: dict[str, list[Source]]) -> None:
    """Each character stands in one row, in one style, in the colour of its last token."""
    rows = drawn(widget)
    for character, sources in owners.items():
        found = []
        for row in rows:
            text = "".join(c for c, _ in row)
            for match in re.finditer(re.escape(character), text):
                styles = {style for _, style in row[match.start() : match.end()]}
                assert len(styles) == 1, (character, styles)
                (style,) = styles
                assert style.color is not None
                found.append(SOURCE_OF[style.color.name])
        assert found == sources, character


def owners_of(spans: list[Span]) -> dict[str, list[Source]]:
    """The sources of the tokens that end each character, as often as it stands there."""
    text = "".join(span.text for span in spans)
    source_at = [span.token.source for span in spans for _ in span.text]
    return {
        character: [
            source_at[match.end() - 1] for match in re.finditer(re.escape(character), text)
        ]
        for character in CHARACTERS.values()
    }


@pytest.mark.parametrize("width", [80, 14])
@pytest.mark.parametrize("shift", SHIFTS)
async def test_no_colour_and_no_line_break_cuts_a_character(shift: int, width: int) -> None:
    _, events = said(TEXT, shift)
    async with transcript(width, 40) as widget:
        widget.begin_reply(1)
        seen: list[Span] = []
        for event in events:
            if isinstance(event, TokensCommitted):
                seen += event.spans
                widget.append(1, Channel.ANSWER, event.spans)
                widget.flush()
        check_whole(widget, owners_of(seen))
        assert all(owners_of(seen).values())


def test_two_flags_are_two() -> None:
    assert [end for _, end, _ in graphemes("🇩🇪🇫🇷🇮")] == [2, 4, 5]
    assert [cells for _, _, cells in graphemes("🇩🇪🇫🇷")] == [2, 2]
    assert [end for _, end, _ in graphemes("कक्षि")] == [1, 5]
    assert [end for _, end, _ in graphemes("क् a्b")] == [2, 3, 5, 6]


@pytest.mark.parametrize("n", [*range(1, 24, 3), 40, 70])
def test_a_reply_that_ends_inside_a_character(n: int) -> None:
    """What it shows is what its tokens mean, however they are read again."""
    log, _ = said(TEXT, 0, max_tokens=n)
    assert len(log.end.ids) == n
    assert log.end.reason is FinishReason.LENGTH
    assert log.answer == vocab.tokenizer().decode(list(log.end.ids))
    assert log.answer.rstrip("\ufffd") in TEXT
    assert log.answer.count("\ufffd") <= 1


def kept(folder: Path, shift: int) -> Session:
    """A session that holds such a reply."""
    _, events = said(TEXT, shift)
    session = Library(folder).create("characters")
    assert session.ask("say it", ThinkMode.OFF).id == 1
    for event in events:
        if getattr(event, "turn_id", None) == 1:
            session.report(event)
    return session


@pytest.mark.parametrize("kind", ["html", "svg"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_no_colour_cuts_a_character_of_an_export(kind: str, shift: int, tmp_path: Path) -> None:
    session = kept(tmp_path, shift)
    page = export(session.tree, session.name, kind, LOOK, None)
    session.close()
    pattern = (
        r"<span class=\w+ title=[^>]*>([^<]*)<" if kind == "html" else r"<text [^>]*>([^<]*)<"
    )
    texts = [html.unescape(text) for text in re.findall(pattern, page)]
    joined = "\n".join(texts)
    wanted = owners_of(spans_of(said(TEXT, shift)[1]))
    for name, character in CHARACTERS.items():
        if name != TAGGED:
            assert joined.count(character) == len(wanted[character]), character


def test_a_rejected_draft_goes_before_the_character_that_it_came_into(tmp_path: Path) -> None:
    """Its tokens came between the bytes of one; it is drawn beside, never inside."""
    for shift in SHIFTS:
        session = kept(tmp_path / str(shift), shift)
        rounds = [e for e in session.tree.turns[1].events if isinstance(e, RoundVerified)]
        assert any(e.n_accepted < len(e.proposal_ids) for e in rounds)
        page = export(session.tree, session.name, "html", LOOK, None)
        session.close()
        shown = re.sub(r"<del [^>]*>[^<]*</del>", "\0", page)
        assert "\0" in shown
        for character in CHARACTERS.values():
            inside = "|".join(
                re.escape(character[:at]) + "(?:<[^>]*>|\0)+" + re.escape(character[at:])
                for at in range(1, len(character))
            )
            assert not inside or not re.search(inside, shown), character
