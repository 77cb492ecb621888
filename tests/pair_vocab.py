"""A small but real byte-level vocabulary: every byte, some merges, every special token."""

from __future__ import annotations

from dataclasses import dataclass

from ds4chat.text.bytemap import BYTE_SYMBOLS

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
NOISE = "<｜place▁holder▁no▁799｜>"
_HEAD = (BOS, EOS, "<｜▁pad▁｜>")
_TAIL = ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", NOISE)
# Words, a letter of two bytes, and the first two bytes of most emoji: a token may end inside
# a character.
_MERGES = (
    *(
        "t h",
        "th e",
        "Ġ the",
        "i n",
        "in g",
        "a n",
        "an d",
        "Ġ and",
        "e r",
        "o u",
        "Ġ a",
        "Ġ s",
    ),
    *("l l", "h e", "r e", "o n", "Ġ t", "Ġ o", "e s", "Ã ©", "Ã ¤", "ð Ł", "ðŁ ĺ", "ä ¸"),
)
NORMAL, CONTROL = 1, 3
MIN_VOCAB = len(_HEAD) + 256 + len(_MERGES) + len(_TAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocab:
    """What goes into `tokenizer.ggml.*`."""

    tokens: list[str]
    types: list[int]
    merges: list[str]


def make_vocab(n_vocab: int, end_id: int = 1) -> Vocab:
    """`n_vocab` tokens; the last is the noise slot, `end_id` holds the end token."""
    assert n_vocab >= MIN_VOCAB, f"at least {MIN_VOCAB} tokens wanted, {n_vocab} asked for"
    merged = [merge.replace(" ", "") for merge in _MERGES]
    fillers = [f"<fill{i}>" for i in range(n_vocab - MIN_VOCAB)]
    tokens = [*_HEAD, *BYTE_SYMBOLS, *fillers, *merged, *_TAIL]
    types = [NORMAL] * n_vocab
    for special in (*_HEAD, *_TAIL):
        types[tokens.index(special)] = CONTROL
    tokens[1], tokens[end_id] = tokens[end_id], tokens[1]
    types[1], types[end_id] = types[end_id], types[1]
    return Vocab(tokens=tokens, types=types, merges=list(_MERGES))
