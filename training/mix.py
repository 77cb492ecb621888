"""Encode the training mix alone, for a draft trained against an exported base file.

python -m training.mix --corpus C.jsonl.zst --prepared DIR --out mix.npz
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from training import data, tokenizer


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--corpus", type=Path, required=True)
    p.add_argument("--prepared", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    a = p.parse_args()
    vocab = tokenizer.Vocabulary.load(a.prepared / "vocab.json")
    words = data.read_words(a.prepared / "words.json")
    part = a.out.with_name("part." + a.out.name)
    data.build(a.corpus, vocab, words, a.seed, a.workers).save(part)
    part.replace(a.out)


if __name__ == "__main__":
    main()
