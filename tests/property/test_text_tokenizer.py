from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.text import reference, vocab

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
# Characters of every rule, whose categories no Unicode version disputes.
EVERY_RULE = "azAZ09 \t\n\r.,'_-<>|\u0301\u00a0\u3000\x00é中ぁカ“—😀½١"
PIECES = st.text(st.sampled_from(EVERY_RULE), max_size=40)


@given(text=TEXTS)
def test_decode_of_encode_is_the_text(text: str) -> None:
    made = vocab.tokenizer()
    assert made.decode(made.encode_plain(text)) == text


@given(text=PIECES)
@settings(max_examples=500)
def test_ids_equal_the_reference(text: str) -> None:
    tokens, merges, _ = vocab.arrays()
    assert vocab.tokenizer().encode_plain(text) == reference.encode(text, tokens, merges)


@given(parts=st.lists(st.one_of(st.sampled_from(vocab.MARKERS), PIECES), max_size=8))
def test_plain_text_never_holds_a_marker_id(parts: list[str]) -> None:
    made = vocab.tokenizer()
    markers = {made.id_of(marker) for marker in vocab.MARKERS}
    ids = made.encode_plain("".join(parts))
    assert markers.isdisjoint(ids)
    assert made.decode(ids) == "".join(parts)


@given(parts=st.lists(st.one_of(st.sampled_from(vocab.MARKERS), TEXTS), max_size=8))
def test_rendered_text_decodes_to_itself(parts: list[str]) -> None:
    made = vocab.tokenizer()
    assert made.decode(made.encode_rendered("".join(parts))) == "".join(parts)
