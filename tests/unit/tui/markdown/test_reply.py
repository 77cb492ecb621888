"""A reply while it grows: what is parsed again, what is final, what is kept per token."""

from __future__ import annotations

import pytest

from ds4chat.protocol.types import Source
from ds4chat.tui.markdown.code import CHUNK_LINES
from ds4chat.tui.markdown.paragraph import MAX_PARAGRAPH, cut_paragraph
from ds4chat.tui.markdown.reply import MAX_SETTLED, NO_CONFIDENCE, SOURCES, Reply
from tests.unit.tui.markdown.build import drawn, reply_of, span, streamed


def costs(texts: list[str]) -> list[int]:
    """Characters parsed by each flush."""
    reply = Reply()
    found = []
    for text in texts:
        before = reply.n_parsed
        reply.append([span(text)])
        reply.flush()
        found.append(reply.n_parsed - before)
    return found


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("a few words.\n\n", 60),
        ("- an item of a list\n", 80),
        ("> a quote\n>\n", 80),
        ("1. one\n   - nested\n", 80),
        ("# heading\n", 60),
        ("---\n", 60),
    ],
)
def test_only_the_last_block_is_parsed_again(text: str, bound: int) -> None:
    assert max(costs([text] * 300)) <= bound


def test_an_endless_paragraph_costs_no_more_than_its_limit() -> None:
    assert max(costs(["word " * 20] * 1000)) <= MAX_PARAGRAPH + 200


def test_endless_line_feeds_cost_nothing() -> None:
    assert max(costs(["text\n", *["\n"] * 2000, "more"])) <= 20


def test_an_open_fence_is_grown_in_chunks() -> None:
    line = "x = 1\n"
    assert max(costs(["```py\n", *[line] * 800])) <= (CHUNK_LINES + 2) * len(line)
    reply = reply_of(["```py\n", line * 100, "```\n"])
    assert [block.text.count("x = 1") for block in reply.blocks] == [40, 40, 20]
    assert drawn(reply.blocks) == "│ py\n" + "\n".join(["│ x = 1"] * 100)


def test_final_blocks_stay_the_same_objects() -> None:
    reply = Reply()
    reply.append([span("a\n\nb\n\nc")])
    reply.flush()
    first, second = reply.blocks[:2]
    reply.append([span(" more\n\nd")])
    assert reply.flush() == 2
    assert reply.blocks[0] is first
    assert reply.blocks[1] is second
    assert [block.text for block in reply.blocks] == ["a", "b", "c more", "d"]


def test_a_flush_without_news_changes_nothing() -> None:
    reply = Reply()
    reply.append([span("a")])
    reply.flush()
    block = reply.blocks[0]
    assert reply.flush() == 1
    assert reply.blocks == [block]


def test_a_line_that_may_close_a_fence_waits_for_its_end() -> None:
    reply = Reply()
    reply.append([span("```\na\n``")])
    reply.flush()
    assert drawn(reply.blocks) == "│ a"
    reply.append([span("x")])
    reply.flush()
    assert drawn(reply.blocks) == "│ a\n│ ``x"


def test_settling_keeps_what_comes_out_the_same() -> None:
    reply = Reply()
    reply.append([span("a\n\n")])
    reply.flush()
    reply.append([span("b\n\n```\nx\n``")])
    reply.flush()
    first = reply.blocks[0]
    reply.settle()
    assert reply.blocks[0] is first
    assert drawn(reply.blocks) == "a\n\nb\n\n│ x\n│ ``"
    assert reply.n_final == len(reply.blocks)


def test_provenance_is_kept_per_token() -> None:
    reply = Reply()
    reply.append(
        [span("a", Source.BONUS, 1.0), span("", Source.FALLBACK), span("bc", confidence=0.5)]
    )
    log = reply.log
    assert [SOURCES[code] for code in log.sources] == [
        Source.BONUS,
        Source.FALLBACK,
        Source.PLAIN,
    ]
    assert list(log.ends) == [1, 1, 3]
    assert list(log.confidences) == [254, NO_CONFIDENCE, 127]
    assert list(log.rounds) == [3, 3, 3]
    assert list(log.positions) == [2, 2, 2]


@pytest.mark.parametrize("confidence", [float("nan"), float("inf"), -1.0, 7.0])
def test_strange_confidences_do_no_harm(confidence: float) -> None:
    reply = Reply()
    reply.append([span("a", confidence=confidence)])
    assert 0 <= reply.log.confidences[0] <= NO_CONFIDENCE


def test_paragraph_cuts_never_move() -> None:
    text = "some words and more " * 2000
    whole = cut_paragraph(text)
    assert [start for start, _ in whole[1:]] == [end for _, end in whole[:-1]]
    for n in range(MAX_PARAGRAPH, len(text), 777):
        part = cut_paragraph(text[:n])
        assert part[:-1] == whole[: len(part) - 1]


@pytest.mark.parametrize("word", ["word ", "word\n", "日本", "x", "**bold** and some `code`\n"])
def test_a_long_paragraph_streams_as_it_parses(word: str) -> None:
    texts = [word] * (30_000 // len(word))
    one, many = reply_of(texts), streamed(texts, [97] * 400)
    assert [block.picture() for block in one.blocks] == [
        block.picture() for block in many.blocks
    ]
    shown = "".join(block.text for block in one.blocks).replace(" ", "")
    assert shown == "".join(texts).replace(" ", "").replace("\n", "").replace("**", "").replace(
        "`", ""
    )


@pytest.mark.parametrize("flushes", [1, 3])
def test_text_after_the_end_is_still_shown(flushes: int) -> None:
    reply = Reply()
    for _ in range(flushes):
        reply.append([span("a\n\n```\nb\n")])
        reply.flush()
    reply.settle()
    assert reply.settle() == reply.n_final == len(reply.blocks)
    reply.append([span("``` c\n")])
    reply.flush()
    whole = "a\n\n```\nb\n" * flushes + "``` c\n"
    assert drawn(reply.blocks) == drawn(reply_of([whole]).blocks)
    assert reply.text == whole


def test_blocks_that_stay_the_same_stay_the_same_objects() -> None:
    reply = Reply()
    items = "".join(f"  - item {n}\n" for n in range(20))
    reply.append([span("- top\n" + items)])
    reply.flush()
    before = list(reply.blocks)
    reply.append([span("  - the last"), span(" one")])
    assert reply.flush() == len(before)
    assert all(a is b for a, b in zip(reply.blocks, before, strict=False))
    reply.append([span(" grows")])
    assert reply.flush() == len(before)


def test_a_very_long_text_is_not_parsed_again_at_its_end() -> None:
    reply = Reply()
    for n in range(700):
        reply.append([span(f"paragraph {n} with **some** words and more of them\n\n")])
        reply.flush()
    before = reply.n_parsed
    assert len(reply.text) > MAX_SETTLED
    blocks = list(reply.blocks)
    reply.settle()
    assert reply.n_parsed - before < 1_000
    assert reply.n_final == len(reply.blocks) == len(blocks)
