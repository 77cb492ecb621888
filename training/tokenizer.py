"""The nano's vocabulary: byte-level BPE with V4's split patterns and markers, single digits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import Regex, models, pre_tokenizers, trainers

from ds4chat.text.tokenizer import (
    ASSISTANT,
    BOS,
    DSML,
    EOS,
    OFFICIAL_SPLITS,
    THINK_CLOSE,
    THINK_OPEN,
    USER,
)

NOISE = "<｜place▁holder▁no▁0｜>"
SPECIALS = (BOS, EOS, NOISE, USER, ASSISTANT, THINK_OPEN, THINK_CLOSE, DSML)
"""Ids 0..7 in this order; NOISE is the draft's input id and the padding of a batch."""
BOS_ID, EOS_ID, NOISE_ID, USER_ID, ASSISTANT_ID, OPEN_ID, CLOSE_ID, DSML_ID = range(8)
_CONTROL, _NORMAL, _USER_DEFINED = 3, 1, 4


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a GGUF stores of a tokenizer."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]

    @property
    def token_types(self) -> list[int]:
        """`tokenizer.ggml.token_type` of every token."""
        kind = dict.fromkeys(SPECIALS, _CONTROL)
        kind.update({THINK_OPEN: _USER_DEFINED, THINK_CLOSE: _USER_DEFINED})
        return [kind.get(t, _NORMAL) for t in self.tokens]

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps({"tokens": self.tokens, "merges": self.merges}))

    @staticmethod
    def load(path: Path) -> Vocabulary:
        """Read what `save` wrote."""
        raw = json.loads(path.read_text())
        return Vocabulary(tuple(raw["tokens"]), tuple(raw["merges"]))

    def encoder(self) -> tokenizers.Tokenizer:
        """A fast encoder of plain text (no markers recognised)."""
        ids = {t: i for i, t in enumerate(self.tokens) if t not in SPECIALS}
        pairs = [tuple(m.split(" ")) for m in self.merges]
        bpe = tokenizers.Tokenizer(models.BPE(ids, pairs))
        bpe.pre_tokenizer = _splitter(OFFICIAL_SPLITS[0])
        return bpe

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; markers as written, bytes that are no UTF-8 as U+FFFD."""
        table = _symbol_bytes()
        out = bytearray()
        for i in ids:
            token = self.tokens[i]
            out += token.encode() if i < len(SPECIALS) else bytes(table[s] for s in token)
        return out.decode("utf-8", errors="replace")


def _splitter(digits: str) -> pre_tokenizers.PreTokenizer:
    splits = [digits, *OFFICIAL_SPLITS[1:]]
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(s), "isolated") for s in splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _symbol_bytes() -> dict[str, int]:
    """Printable symbol -> byte, the byte-level map of GPT-2."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in kept}
    moved = (b for b in range(256) if b not in set(kept))
    table.update({chr(256 + i): b for i, b in enumerate(moved)})
    return table


def train(texts: Iterator[str], n_vocab: int) -> Vocabulary:
    """Learn merges; digits never merge, so a number is its digits.

    Splitting single digits while learning leaves no merge of two digits, and then V4's own
    pattern (up to three digits) gives the same ids.
    """
    bpe = tokenizers.Tokenizer(models.BPE())
    bpe.pre_tokenizer = _splitter(r"\p{N}")
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab - len(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=[],
    )
    bpe.train_from_iterator(texts, trainer)
    learned = json.loads(bpe.to_str())["model"]
    by_id = sorted(learned["vocab"], key=learned["vocab"].get)
    merges = tuple(m if isinstance(m, str) else " ".join(m) for m in learned["merges"])
    return Vocabulary((*SPECIALS, *by_id), merges)
