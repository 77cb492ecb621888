"""Markdown of replies: any text, cut anywhere, keeps every character and where it came from."""

from __future__ import annotations

import random
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from ds4chat.tui.markdown.block import Block
from ds4chat.tui.markdown.layout import lay_out
from ds4chat.tui.markdown.reply import Reply
from tests.unit.tui.markdown.build import span, streamed

FRAGMENTS = [
    "a",
    "b c ",
    " ",
    "\n",
    "\n\n",
    "# ",
    "- ",
    "1. ",
    "> ",
    "```",
    "```py\n",
    "~~~",
    "**",
    "*",
    "_",
    "`",
    "``",
    "~~",
    "| a | b |\n|---|---|\n",
    "| x",
    "|",
    "\\|",
    "\\",
    "[l](u)",
    "[",
    "](",
    "<http://q.r>",
    "&amp;",
    "&#x202e;",
    "\t",
    "    ",
    "  \n",
    "---\n",
    "***\n",
    "\x1b[31m",
    "e",
    "\u0301",
    "👩",
    "\u200d",
    "👧",
    "\ufe0f",
    "日本",
    "Жж",
    "12) ",
    "  - ",
    "\r\n",
    "[/]",
    "<b>",
    "-\n",
    ">",
    "&#10;",
    "\u2028",
    "word word word ",
]


def random_document(seed: int) -> str:
    """A longer document than hypothesis builds by itself."""
    rng = random.Random(seed)
    return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(20, 70)))


documents = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join),
    st.integers(0, 2**32).map(random_document),
)
cuts = st.lists(st.integers(1, 5), max_size=200)
steps = st.lists(st.integers(1, 6), max_size=100)


def tokens_of(text: str, sizes: list[int]) -> list[str]:
    texts, at = [], 0
    for size in sizes:
        texts.append(text[at : at + size])
        at += size
    return [*texts, *text[at:]]


def at_once(texts: list[str]) -> Reply:
    reply = Reply()
    reply.append([span(text) for text in texts])
    reply.flush(is_end=True)
    return reply


def check_runs(block: Block, source: str) -> None:
    """Runs cover the text; an identity shows the very characters of its source."""
    at = 0
    for run in block.runs:
        assert run.display == at
        at += run.length
        shown = block.text[run.display : at]
        if run.is_identity:
            assert source[run.source : run.source + run.length] == shown
        else:
            assert -1 <= run.source < len(source)
    assert at == len(block.text)


@given(document=documents, sizes=cuts)
@settings(max_examples=150, deadline=None)
def test_runs_tell_the_truth(document: str, sizes: list[int]) -> None:
    reply = at_once(tokens_of(document, sizes))
    assert len(reply.text) == len(document)
    for block in reply.blocks:
        check_runs(block, reply.text)


@given(document=documents, sizes=cuts, flushes=steps)
@settings(max_examples=150, deadline=None)
def test_streaming_ends_in_the_same_picture_as_parsing_at_once(
    document: str, sizes: list[int], flushes: list[int]
) -> None:
    texts = tokens_of(document, sizes)
    one, many = at_once(texts), streamed(texts, flushes)
    assert [block.picture() for block in many.blocks] == [
        block.picture() for block in one.blocks
    ]
    assert [block.runs for block in many.blocks] == [block.runs for block in one.blocks]


@given(document=documents, sizes=cuts)
@settings(max_examples=100, deadline=None)
def test_each_character_has_the_token_that_completed_its_source(
    document: str, sizes: list[int]
) -> None:
    texts = tokens_of(document, sizes)
    owners = [index for index, text in enumerate(texts) for _ in text]
    for block in at_once(texts).blocks:
        if not block.text.isascii():
            continue  # graphemes have a test of their own
        for piece in block.pieces(0, len(block.text)):
            for offset in range(piece.start, piece.end):
                source = block.source_at(offset)
                assert piece.token == (owners[source] if source >= 0 else -1)


@given(document=documents)
@settings(max_examples=150, deadline=None)
def test_no_letter_is_lost_and_no_control_is_left(document: str) -> None:
    shown = "".join(block.text for block in at_once([document]).blocks)
    for letter in "日本Жж👧":
        assert shown.count(letter) == document.count(letter)
    for char in set(shown) - {"\n"}:
        assert unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"}
        assert unicodedata.bidirectional(char) not in {"RLO", "LRO", "PDF", "RLI", "LRI"}


@given(document=documents, width=st.integers(20, 90))
@settings(max_examples=150, deadline=None)
def test_lines_fit_and_draw_everything_once(document: str, width: int) -> None:
    for block in at_once([document]).blocks:
        drawn = []
        for line in lay_out(block, width):
            texts = [
                item if isinstance(item, str) else block.text[item[0] : item[1]]
                for item in line
            ]
            assert sum(cell_len(text) for text in texts) <= width
            drawn += [i for item in line if not isinstance(item, str) for i in range(*item)]
        assert len(drawn) == len(set(drawn))
        missing = set(range(len(block.text))) - set(drawn)
        assert all(block.text[offset] in " \n─" for offset in missing)
