"""The height of the prompt's rows: right after every edit and wrap, and read at no cost."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from textual.document._document import Document

from ds4chat.tui.widgets.wrapped import PromptRows

_TEXTS = st.text(alphabet="ab \t\nx界", max_size=40)
_PLACES = st.tuples(st.integers(0, 9), st.integers(0, 12))


class _Uncounted(list[list[int]]):
    """A list that may be looked into but not walked through."""

    def __iter__(self) -> Iterator[list[int]]:
        raise AssertionError("all lines were counted")


def _place(document: Document, place: tuple[int, int]) -> tuple[int, int]:
    line = min(place[0], document.line_count - 1)
    return line, min(place[1], len(document[line]))


@given(
    _TEXTS,
    st.integers(0, 9),
    st.lists(st.tuples(_TEXTS, _PLACES, _PLACES, st.none() | st.integers(0, 9)), max_size=5),
)
def test_the_height_is_the_number_of_rows(
    text: str,
    width: int,
    edits: list[tuple[str, tuple[int, int], tuple[int, int], int | None]],
) -> None:
    document = Document(text)
    rows = PromptRows(document, width)
    for put, start, end, new_width in edits:
        top, bottom = sorted((_place(document, start), _place(document, end)))
        result = document.replace_range(top, bottom, put)
        rows.wrap_range(top, bottom, result.end_location)
        if new_width is not None:
            rows.wrap(new_width)
        assert rows.height == sum(len(sections) for sections in rows.lines)


def test_the_height_of_many_lines_is_not_counted() -> None:
    rows = PromptRows(Document("\n" * 1_000), 40)
    rows._wrap_offsets = _Uncounted(rows._wrap_offsets)
    assert rows.height == 1_001
