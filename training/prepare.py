"""Make the vocabulary and the word list from the corpus (once, on a CPU).

python -m training.prepare --corpus teacher-corpus.jsonl.zst --out DIR
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from training import data, tokenizer
from training.config import NANO
from training.exact_words import Words

TOKENIZER_SEED = 5


def sample_texts(corpus: Path, words: Words, n_rows: int) -> Iterator[str]:
    """Texts that the merges are learned from: corpus rows and a share of each exact kind."""
    for row in itertools.islice(data.read_corpus(corpus), n_rows):
        if row["kind"] not in data.SHARE_ALIKE:
            yield from (t["content"] for t in row["turns"])
    for kind, n in data.COUNTS.items():
        for e in data.exact_examples(TOKENIZER_SEED, kind, n // 12, words):
            yield from (text for t in e.turns for text in (t.user, t.answer, t.think or ""))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--corpus", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--rows", type=int, default=150_000, help="corpus rows used")
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    rows = filter(
        None, map(data.to_example, itertools.islice(data.read_corpus(a.corpus), a.rows))
    )
    known = tuple(data.common_words(rows, 9000))
    words = Words(known, frozenset())
    vocab = tokenizer.train(sample_texts(a.corpus, words, a.rows), NANO.n_vocab)
    vocab.save(a.out / "vocab.json")
    unseen = data.choose_unseen(known, vocab)
    (a.out / "words.json").write_text(json.dumps({"all": known, "unseen": sorted(unseen)}))
    print(f"{len(known)} words ({len(unseen)} unseen), {len(vocab.tokens)} tokens")


if __name__ == "__main__":
    main()
