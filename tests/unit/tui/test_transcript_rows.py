"""The column of rows: lines and tops stay right whatever is exchanged."""

from __future__ import annotations

import random

import pytest

from ds4chat.tui.widgets.transcript_rows import Column, Row, Section, Tone, plain_block


def row(rng: random.Random, *, gap: bool = False) -> Row:
    words = " ".join("word" for _ in range(rng.randint(0, 30)))
    return Row(block=plain_block(words), tone=Tone.INFO, gap=gap)


def check(column: Column, sections: list[Section]) -> None:
    rows = [item for section in sections for item in section.rows]
    assert column.rows == rows
    top = 0
    for item, found in zip(rows, column.tops, strict=True):
        assert found == top
        top += len(item.lines)
    assert column.height == top
    for section in sections:
        assert column.rows[section.start : section.start + len(section.rows)] == section.rows
    lines = [(item, line) for item in rows for line in range(len(item.lines))]
    places = [column.place(y) for y in range(column.height)]
    assert [(place.row, place.line) for place in places if place] == lines
    assert column.place(-1) is None
    assert column.place(column.height) is None


@pytest.mark.parametrize("seed", range(8))
def test_tops_follow_every_exchange(seed: int) -> None:
    rng = random.Random(seed)
    column = Column()
    column.resize(40)
    sections: list[Section] = []
    for _ in range(60):
        if not sections or rng.random() < 0.2:
            sections.append(column.add_section())
        section = rng.choice(sections)
        first = rng.randint(0, len(section.rows))
        before = column.rows.copy(), column.tops.copy()
        rows = [row(rng, gap=rng.random() < 0.5) for _ in range(rng.randint(0, 4))]
        top = column.replace(section, first, rows)
        check(column, sections)
        kept = [item for item, at in zip(*before, strict=True) if at < top]
        assert column.rows[: len(kept)] == kept
        if rng.random() < 0.2:
            column.resize(rng.randint(20, 90))
            check(column, sections)


def test_a_row_finds_the_line_of_an_offset() -> None:
    column = Column()
    column.resize(25)
    item = Row(block=plain_block("one two three four five six seven"), tone=Tone.USER, gap=True)
    column.replace(column.add_section(), 0, [item])
    assert len(item.lines) == 3
    for line in range(1, 3):
        assert item.line_of(item.offset_of(line)) == line
    assert item.line_of(item.offset_of(2) - 2) == 1
    assert column.top_of(item) == 0
    assert column.top_of(row(random.Random(1))) is None
