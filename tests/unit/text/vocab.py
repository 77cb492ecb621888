"""A vocabulary made in memory: all bytes, merges learned from a few lines, the real markers."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache

from ds4chat.text.tokenizer import Tokenizer
from tests.unit.text import reference

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, NO_THINK = "<think>", "</think>"
DSML = "｜DSML｜"
PLACEHOLDER = "<｜place▁holder▁no▁0｜>"
REQUIRED = (BOS, EOS, USER, ASSISTANT)
MARKERS = (*REQUIRED, THINK, NO_THINK, DSML, PLACEHOLDER)
NORMAL, CONTROL = 1, 3

LESSON = """\
The quick brown fox's tail isn't 1234567 hairs long; it's 98,765.43 nm wide.
def think(user): return "<think>" + user + "</think>"  # begin of sentence｜User｜
こんにちは世界、日本語のテキスト。中文文本测试，你好你好你好。
“Curly quotes” — and emoji 😀😀 👩‍👩‍👧 é e\u0301 naïve café\n\n\n  indented\tand tabbed\r\n
"""


def learn_merges(text: str, n_merges: int) -> list[str]:
    """The most frequent adjacent pair, again and again; ties go to the smaller pair."""
    words = [[reference.SYMBOLS[b] for b in w.encode()] for w in reference.split(text * 2)]
    merges: list[str] = []
    for _ in range(n_merges):
        pairs = Counter(pair for w in words for pair in itertools.pairwise(w))
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(" ".join(best))
        words = [reference.merge_word(w, {best: 0}) for w in words]
    return merges


@cache
def arrays(*, thinking: bool = True) -> tuple[list[str], list[str], list[int]]:
    """`(tokens, merges, token_types)`; the markers lie at both ends, as in the real files."""
    merges = learn_merges(LESSON, 300)
    learned = [*dict.fromkeys(merge.replace(" ", "") for merge in merges)]
    later = [m for m in MARKERS[2:] if thinking or m not in {THINK, NO_THINK}]
    tokens = [BOS, EOS, *reference.SYMBOLS, *learned, *later]
    types = [CONTROL if token in MARKERS else NORMAL for token in tokens]
    return tokens, merges, types


@cache
def tokenizer(*, thinking: bool = True) -> Tokenizer:
    tokens, merges, types = arrays(thinking=thinking)
    return Tokenizer.from_vocab(tokens, merges, pre="joyai-llm", token_types=types)
