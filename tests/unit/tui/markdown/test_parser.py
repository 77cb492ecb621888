"""What Markdown looks like as blocks, and which source each character shows."""

from __future__ import annotations

import pytest

from ds4chat.tui.markdown.block import Look
from tests.unit.tui.markdown.build import drawn, reply_of, token_of

PICTURES = {
    "heading": ("# A *b* ##", "# A b"),
    "no setext": ("a\n===\nb:\n- c", "a === b:\n• c"),
    "rule under text": ("a\n---", "a\n\n" + "─" * 40),
    "soft and hard breaks": ("a\nb  \nc\\\nd", "a b\nc\nd"),
    "entity and escape": (r"&lt;b&gt; \*a\* \q", r"<b> *a* \q"),
    "html is text": ("<b>x</b> <!-- y -->\n\n<div>\nz", "<b>x</b> <!-- y -->\n\n<div> z"),
    "references are text": ("[a]\n\n[a]: http://x.example", "[a]\n\n[a]: http://x.example"),
    "link": ("see [the *page*](http://x.example 'T')!", "see the page (http://x.example)!"),
    "link that says its target": ("[http://x.example](http://x.example)", "http://x.example"),
    "script link is text": ("[a](javascript:b)", "[a](javascript:b)"),
    "autolink": ("<http://x.example/a%20b>", "http://x.example/a%20b"),
    "image": ("![a](b.png)", "!a (b.png)"),
    "code span": ("`` a`b `` and `c\nd`", "a`b and c d"),
    "nested lists": ("- a\n  1. b\n     - c\n- d", "• a\n  1. b\n     • c\n• d"),
    "loose list": ("- a\n\n- b", "• a\n\n• b"),
    "list of list": ("- - a", "• • a"),
    "empty item": ("-\n- a", "•\n• a"),
    "number kept": ("7) a\n9) b", "7) a\n8) b".replace("8", "9")),
    "quote": ("> a\n>\n> - b\n>   c", "┃ a\n┃\n┃ • b c"),
    "quote in item": ("- > a\n  > b", "• ┃ a b"),
    "fence": ("```py\nx\n\ty\n```\nz", "│ py\n│ x\n│     y\n\nz"),
    "fence without label": ("~~~\nx\n~~~", "│ x"),
    "empty fence": ("```\n```", "│"),
    "fence in item": ("- ```\n  a\n  ```\n- b", "•\n  │ a\n• b"),
    "open fence": ("```\na\n", "│ a"),
    "indented code": ("a\n\n    b\n    c", "a\n\n│ b\n│ c"),
    "table": ("| a | b |\n|:-:|--:|\n| 1 | long |", "a │    b\n──┼─────\n1 │ long"),
    "deep nesting is text": (">" * 99 + "a", ">" * 70 + "\n" + ">" * 29 + "a"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str) -> None:
    source, picture = PICTURES[name]
    assert drawn(reply_of([source]).blocks, 70) == picture


@pytest.mark.parametrize(
    ("source", "shown", "at"),
    [
        ("- a", "•", "-"),
        ("> 12. a", "12.", "12."),
        ("- x\n- y", "y", "y"),
        ("# h", "#", "#"),
        ("> > # h", "h", "h"),
        ("&amp;x", "&", ";"),
        (r"\*", "*", "*"),
        ("a\nb", " ", "\n"),
        ("---", "─", "-"),
        ("```\n\ta\n```", " ", "\t"),
        ("```\n  a\n```", "a", "a"),
        ("  ```x y\n    z\n  ```", "z", "z"),
        ("| a |\n|---|\n| b\\|c |", "|", "|"),
        ("[t](u)", "u", "u"),
        ("**x** `y`", "y", "y"),
    ],
)
def test_character_shows_its_source(source: str, shown: str, at: str) -> None:
    reply = reply_of(source)
    block = next(b for b in reversed(reply.blocks) if shown in b.text)
    offset = block.text.rindex(shown)
    found = block.source_at(offset)
    assert source[found : found + len(at)] == at or source[found] == at[-1]
    assert token_of(block, offset) == found  # one token for each character


def test_markers_of_later_items_are_their_own() -> None:
    reply = reply_of("- a\n- b\n  - c")
    assert [b.source_at(0) for b in reply.blocks] == [0, 4, 10]


def test_looks() -> None:
    block = reply_of(["a **b** *c* ~~d~~ `e` [f](g)"]).blocks[0]
    looks = {
        block.text[p.start : p.end].strip(): p.look for p in block.pieces(0, len(block.text))
    }
    assert looks["b"] == Look.BOLD
    assert looks["c"] == Look.ITALIC
    assert looks["d"] == Look.STRIKE
    assert looks["e"] == Look.CODE
    assert looks["f (g)"] == Look.LINK


def test_a_grapheme_takes_its_last_token() -> None:
    reply = reply_of(["e", "\u0301", "x", "👩", "\u200d", "👧", "y"])
    block = reply.blocks[0]
    tokens = [token_of(block, offset) for offset in range(len(block.text))]
    assert tokens == [1, 1, 2, 5, 5, 5, 6]


def test_tokens_without_text_own_nothing() -> None:
    block = reply_of(["", "a", "", "", "b", ""]).blocks[0]
    assert [token_of(block, offset) for offset in range(2)] == [1, 4]


@pytest.mark.parametrize("flood", ["[" * 300, "*a " * 2200, "<" * 2200, "&" * 2200])
def test_a_flood_of_marks_is_shown_as_written(flood: str) -> None:
    source = flood + "**a** `b`"
    assert "".join(b.text for b in reply_of([source]).blocks) == source


def test_table_headers_are_bold() -> None:
    block = reply_of(["| a |\n|---|\n| b |"]).blocks[0]
    assert [p.look for p in block.pieces(0, 1)] == [Look.BOLD]
    assert [p.look for p in block.pieces(2, 3)] == [Look.PLAIN]


def test_all_cells_of_a_row_are_shown() -> None:
    picture = drawn(reply_of(["| a |\n|---|\n| b | c | d |"]).blocks)
    assert "b │ c │ d" in picture


def test_a_table_too_narrow_for_columns_lists_its_cells() -> None:
    source = "|" + "|".join(f" word{n} " for n in range(6)) + "|\n" + "|---" * 6 + "|\n"
    picture = drawn(reply_of([source]).blocks, 20)
    assert all(f"word{n}" in picture.split("\n") for n in range(6))


def test_deep_quotes_leave_room_for_the_text() -> None:
    picture = drawn(reply_of([">" * 40 + "some words"]).blocks, 40)
    assert "some words" in picture
    assert max(map(len, picture.split("\n"))) <= 40
