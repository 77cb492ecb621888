from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.protocol.types import Channel, Source, Span, Token
from ds4chat.text.stops import StopGate, StopMatcher

STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)
TEXTS = st.lists(st.text("abc", max_size=4), max_size=12)
TOKEN = Token(id=0, source=Source.PLAIN, round=0, position=0, confidence=None, margin=0.0)


def first_stop(stops: list[str], text: str) -> tuple[int, int] | None:
    """`(start, end)` of the stop that is complete first, the longest at a tie."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts), end
    return None


@given(stops=STOPS, texts=TEXTS)
@settings(max_examples=400)
def test_the_first_stop_is_found_however_the_text_is_cut(
    stops: list[str], texts: list[str]
) -> None:
    matcher = StopMatcher(stops)
    hits = [matcher.push(text) for text in texts]
    wanted = first_stop(stops, "".join(texts))
    if wanted is None:
        assert matcher.hit is None
        return
    ends = [len("".join(texts[: i + 1])) for i in range(len(texts))]
    index = next(i for i, end in enumerate(ends) if end >= wanted[1])
    assert matcher.hit is not None
    assert (matcher.hit.cut, matcher.hit.index) == (wanted[0], index)
    assert [hit is not None for hit in hits] == [i >= index for i in range(len(texts))]


@given(stops=STOPS, texts=TEXTS)
@settings(max_examples=400)
def test_the_gate_shows_exactly_what_stands_before_the_stop(
    stops: list[str], texts: list[str]
) -> None:
    gate = StopGate(stops)
    whole = "".join(texts)
    wanted = first_stop(stops, whole)
    shown: list[str] = []
    for text in texts:
        out = gate.push([(Channel.ANSWER, Span(text=text, token=TOKEN))])
        shown += [span.text for _, span in out]
        limit = len(whole) if wanted is None else wanted[0]
        assert whole[:limit].startswith("".join(shown))
    shown += [span.text for _, span in gate.finish()]
    assert "".join(shown) == (whole if wanted is None else whole[: wanted[0]])
    assert len(shown) == len(texts)
