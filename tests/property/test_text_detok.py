from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ds4chat.protocol.types import Channel, Source, ThinkMode, Token
from ds4chat.text.detok import Detokenizer
from ds4chat.text.parse import ChannelSplitter
from tests.unit.text import vocab
from tests.unit.text.test_detok import byte_ids

ANY_IDS = st.lists(st.integers(0, vocab.tokenizer().n_vocab - 1), max_size=40)
ANY_BYTES = st.binary(max_size=40).map(byte_ids)
TEXT_IDS = st.text(max_size=20).map(lambda t: byte_ids(t.encode("utf-8", "replace")))
IDS = st.one_of(ANY_IDS, ANY_BYTES, TEXT_IDS)


@given(ids=IDS)
def test_streamed_text_equals_decoding_all_at_once(ids: list[int]) -> None:
    made = vocab.tokenizer()
    detok = Detokenizer(made)
    texts = [detok.push(i) for i in ids] + [detok.flush()]
    assert "".join(texts) == made.decode(ids)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), data=st.data())
def test_text_is_the_same_however_its_bytes_are_cut_into_tokens(
    text: str, data: st.DataObject
) -> None:
    made = vocab.tokenizer()
    cut = data.draw(st.integers(0, len(text)))
    ids = made.encode_plain(text[:cut]) + byte_ids(text[cut:].encode())
    detok = Detokenizer(made)
    assert "".join(detok.push(i) for i in ids) == text


@given(ids=IDS, think=st.sampled_from(ThinkMode))
def test_channels_joined_are_the_text_without_think_markers(
    ids: list[int], think: ThinkMode
) -> None:
    made = vocab.tokenizer()
    splitter = ChannelSplitter(made, think)
    pairs = [
        pair
        for i in ids
        for pair in splitter.push(
            Token(id=i, source=Source.BONUS, round=1, position=0, confidence=None, margin=0.0)
        )
    ]
    assert [span.token.id for _, span in pairs] == ids
    pairs += splitter.finish()
    markers = {made.specials.think_open, made.specials.think_close}
    parts: list[list[int]] = [[]]
    for i in ids:
        if i in markers:
            parts.append([])
        else:
            parts[-1].append(i)
    assert "".join(span.text for _, span in pairs) == "".join(map(made.decode, parts))
    channels = [channel for channel, _ in pairs]
    assert channels == sorted(channels, key=[Channel.THINKING, Channel.ANSWER].index)
