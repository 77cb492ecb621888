"""Make official.json from the vendor's tokenizer.json: `make_official.py TOKENIZER_JSON`.

Only what the texts need is kept: the byte symbols, and every merge whose union occurs in one
of their pieces. A merge that occurs in no piece can never be applied, so the ids are those of
the whole vocabulary. The ids of texts come from the vendor's file through `tokenizers`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tokenizers

TEXTS = Path(__file__).with_name("texts.json")
OUT = Path(__file__).with_name("official.json")
EFFORT = Path(__file__).parents[3] / "ds4chat" / "text" / "effort"
NAMED = (
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    *("<think>", "</think>", "｜DSML｜"),
)


def plain_tokenizer(official: dict[str, Any]) -> tokenizers.Tokenizer:
    """The vendor's tokenizer without its added tokens: they must not be found in text."""
    kept = {**official, "added_tokens": [], "post_processor": None}
    return tokenizers.Tokenizer.from_str(json.dumps(kept))


def make(official: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    made = plain_tokenizer(official)
    splitter = made.pre_tokenizer
    assert splitter is not None
    pieces = {piece for text in texts for piece, _ in splitter.pre_tokenize_str(text)}
    inside = {
        piece[i:j]
        for piece in pieces
        for i in range(len(piece))
        for j in range(i + 1, min(len(piece), i + 128) + 1)
    }
    merges = [m for m in official["model"]["merges"] if m.replace(" ", "", 1) in inside]
    vocab: dict[str, int] = official["model"]["vocab"]
    needed = {token for token in vocab if len(token) == 1 and ord(token) < 0x144}
    needed.update(part for m in merges for part in (*m.split(" "), m.replace(" ", "", 1)))
    tokens = {token: vocab[token] for token in sorted(needed)}
    added = {entry["content"]: entry["id"] for entry in official["added_tokens"]}
    tokens.update({name: added[name] for name in NAMED})
    cases = [
        {"text": text, "ids": made.encode(text, add_special_tokens=False).ids} for text in texts
    ]
    return {"n_vocab": 129280, "tokens": tokens, "merges": merges, "cases": cases}


def main() -> None:
    official = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    texts: list[str] = json.loads(TEXTS.read_text(encoding="utf-8"))
    texts += [(EFFORT / f"{name}.txt").read_text(encoding="utf-8") for name in ("high", "max")]
    data = make(official, texts)
    OUT.write_text(json.dumps(data, ensure_ascii=True, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
