from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ds4chat.errors import SessionFileError
from ds4chat.protocol.events import RoundVerified
from ds4chat.protocol.types import Channel, Source, ThinkMode
from ds4chat.store.export import FORMATS, export
from ds4chat.store.export.drawing import COLUMNS
from ds4chat.store.export.look import Look
from ds4chat.store.export.pieces import pieces
from ds4chat.store.export.text import close_fence, quote
from ds4chat.store.library import Library
from ds4chat.store.session import Session
from ds4chat.store.tree import Tree
from tests.unit.store import build

LOOK = Look(
    sources={source: f"#0000{place:02x}" for place, source in enumerate(Source, start=1)},
    background="#101010",
    foreground="#f0f0f0",
    dim="#808080",
)
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=y> ]]> &lt; \x1b[31m\x00\u202e '\""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Library(tmp_path, clock=build.clock()).create("my session")


def make(session: Session, kind: str, branch: str | None = None) -> str:
    return export(session.tree, session.name, kind, LOOK, branch)


class Page(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def hostile(session: Session) -> None:
    session.set_system(HOSTILE)
    turn = session.ask(HOSTILE, ThinkMode.OFF)
    session.report(build.tokens(turn.id, HOSTILE))
    session.report(
        RoundVerified(
            turn_id=turn.id, round=0, proposal_ids=(1,), proposal_texts=(HOSTILE,),
            confidences=(0.5,), n_accepted=0, draft_s=0, verify_s=0,
        )
    )  # fmt: skip
    session.report(build.finished(turn.id))


def test_html_runs_and_fetches_nothing(session: Session) -> None:
    hostile(session)
    page = Page(make(session, "html"))
    allowed = {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "span", "pre",
        "section", "input", "label", "del", "details", "summary",
    }  # fmt: skip
    assert {tag for tag, _ in page.tags} <= allowed
    names = {name for _, attributes in page.tags for name in attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "id", "title",
                     "type", "for"}  # fmt: skip
    assert "<script>" in "".join(page.texts)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]|https?:|url\(", make(session, "html"))


def test_svg_is_sound_xml_with_text_only(session: Session) -> None:
    hostile(session)
    root = ET.fromstring(make(session, "svg"))
    assert {e.tag for e in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "title", "style", "rect", "text")
    }
    assert "<script>" in "".join(root.itertext())


def test_markdown_keeps_hostile_text_in_its_quote(session: Session) -> None:
    session.ask("# not a heading\n\x1b[2J```\nopen fence", ThinkMode.OFF)
    document = make(session, "markdown")
    assert "\n> # not a heading\n> \ufffd[2J```\n> open fence\n" in document
    assert "\x1b" not in document


def test_every_token_has_its_source_and_ghosts_stand_where_they_were(session: Session) -> None:
    build.talk(session, "sum", ThinkMode.HIGH, answer_after=3)
    turn = session.tree.turns[1]
    page = Page(make(session, "html"))
    drawn = [
        a["class"] for tag, a in page.tags if tag == "span" and "margin" in (a["title"] or "")
    ]
    assert drawn == [str(s.token.source) for s in turn.spans() if s.text]
    assert {"accepted", "fallback", "bonus", "plain"} <= set(drawn)
    rejected = sum(
        len(e.proposal_ids) - e.n_accepted for e in turn.events if isinstance(e, RoundVerified)
    )
    assert sum(tag == "del" for tag, _ in page.tags) == rejected > 0


@pytest.mark.parametrize("channel", list(Channel))
def test_pieces_without_ghosts_are_the_text(session: Session, channel: Channel) -> None:
    build.talk(session, "sum", ThinkMode.HIGH)
    turn = session.tree.turns[1]
    text = turn.answer_text if channel is Channel.ANSWER else turn.reasoning_text
    assert "".join(p.text for p in pieces(turn, channel) if p.token is not None) == text


def test_a_ghost_stands_after_what_was_accepted_of_its_round(session: Session) -> None:
    build.talk(session, "sum", ThinkMode.HIGH)
    drawn = pieces(session.tree.turns[1], Channel.ANSWER)
    for place, piece in enumerate(drawn[1:], start=1):
        before = drawn[place - 1]
        if piece.token is None and before.token is not None:
            assert f"round {before.token.round}," in piece.note


def test_the_svg_shows_the_text_in_cells(session: Session) -> None:
    build.say(session, "x" * (COLUMNS + 10) + "\n世界\tend", "one")
    rows: dict[str, str] = {}
    for text in ET.fromstring(make(session, "svg")).iter(f"{SVG}text"):
        rows[text.attrib["y"]] = rows.get(text.attrib["y"], "") + (text.text or "")
        n_cells = int(text.attrib.get("textLength", "0")) // 8
        assert n_cells <= COLUMNS
    shown = list(rows.values())
    assert "x" * COLUMNS in shown
    assert "x" * 10 in shown
    assert any(row.startswith("世界 ") and row.endswith("end") for row in shown)


def test_json_holds_all_branches_and_provenance(session: Session) -> None:
    build.talk(session, "one")
    session.fork(None)
    build.say(session, HOSTILE)
    found = json.loads(make(session, "json"))
    assert found["format"] == "ds4chat-session"
    assert found["current"] == "branch-2"
    assert [branch["leaf"] for branch in found["branches"]] == [1, 2]
    assert [turn["question"] for turn in found["turns"]] == ["one", HOSTILE]
    assert found["turns"][0]["ids"] == session.tree.turns[1].ids


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "json"])
def test_a_branch_can_be_chosen(session: Session, kind: str) -> None:
    build.say(session, "original")
    session.fork(None)
    build.say(session, "variation")
    assert "variation" in make(session, kind)
    assert "original" not in make(session, kind)
    assert "original" in make(session, kind, "main")
    with pytest.raises(SessionFileError, match="no branch"):
        make(session, kind, "mian")


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_session_is_a_document_too(session: Session, kind: str) -> None:
    assert "my session" in make(session, kind)


def test_colours_are_checked() -> None:
    with pytest.raises(SessionFileError, match="no colour"):
        Look(sources=LOOK.sources, background="red;}", foreground="#ffffff", dim="#ffffff")
    with pytest.raises(SessionFileError, match="accepted"):
        Look(sources={}, background="#ffffff", foreground="#ffffff", dim="#ffffff")
    with pytest.raises(SessionFileError, match="cannot export"):
        export(Tree(), "x", "pdf", LOOK)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("a", "a"),
        ("```py\ncode", "```py\ncode\n```"),
        ("```\ncode\n```", "```\ncode\n```"),
        ("````\n```", "````\n```\n````"),
        ("~~~\n```\n~~~", "~~~\n```\n~~~"),
        ("``` a`b", "``` a`b"),
        ("    ```\ntext", "    ```\ntext"),
    ],
)
def test_open_code_blocks_are_closed(text: str, closed: str) -> None:
    assert close_fence(text) == closed
    assert quote(text).count("\n") == closed.count("\n")
