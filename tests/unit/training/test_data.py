"""The mix: roles of tokens, hold-outs, and that no phrasing dominates."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("zstandard")

from ds4chat.text.tokenizer import EOS
from training import data
from training import tokenizer as tok
from training.exact_words import Words
from training.example import ALWAYS_HELD, Example, Turn

WORDS = Words(("apple", "banana", "cherry", "damson", "elder", "figs"), frozenset({"cherry"}))
CORPUS_ROWS = 480_000


def vocabulary() -> tok.Vocabulary:
    texts = [t.user + " " + t.answer for e in every_kind(40) for t in e.turns]
    return tok.train(iter(texts), 700)


def every_kind(n: int) -> list[Example]:
    return [e for kind in data.COUNTS for e in data.exact_examples(3, kind, n, WORDS)]


def test_text_comes_back_and_digits_stay_single() -> None:
    vocab = vocabulary()
    bpe = vocab.encoder()
    for text in ("What is 128 + 77?", "Hello — 日本\n\n  x", "s-p-e-l-l"):
        ids = bpe.encode(text).ids
        assert vocab.decode(ids) == text
    pieces = [vocab.tokens[i] for i in bpe.encode("2048").ids]
    assert pieces == ["2", "0", "4", "8"]
    assert not any(t.isdigit() and len(t) > 1 for t in vocab.tokens)


def test_roles_mark_the_reply_and_its_end() -> None:
    vocab = vocabulary()
    turns = (Turn("What is 1 + 1?", "1 + 1 = 2."), Turn("Thanks", "You're welcome!"))
    row = data.Encoder(vocab).encode([Example("sum", "", "", turns)], 5)[0]
    ids, roles = row & data.ID_MASK, row >> data.ROLE_SHIFT
    assert ids[0] == tok.BOS_ID
    reply = [int(i) for i, r in zip(ids, roles, strict=True) if r == data.REPLY_ROLE]
    assert vocab.decode(reply) == "1 + 1 = 2." + EOS + "You're welcome!" + EOS
    asked = [int(i) for i, r in zip(ids, roles, strict=True) if r == data.USER_ROLE]
    assert vocab.decode(asked) == "What is 1 + 1?Thanks"
    assert all(
        roles[i] == 0 for i in range(len(ids)) if ids[i] in (tok.USER_ID, tok.ASSISTANT_ID)
    )


def test_a_tenth_of_the_examples_thinks() -> None:
    examples = [Example("corpus:story", "", "", (Turn("Tell me a story.", "Once."),))] * 1500
    examples += data.exact_examples(1, "calculation", 1500, WORDS)
    rows = data.Encoder(vocabulary()).encode(examples, 9)
    share = sum(tok.OPEN_ID in (r & data.ID_MASK) for r in rows) / len(rows)
    assert 0.08 < share < 0.13


def test_stories_are_a_set_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_ENCODER", data.Encoder(vocabulary()))
    monkeypatch.setattr(data, "is_validation", lambda e: e.kind == "corpus:poem")
    kinds = ["story", "chat", "list", "code", "poem", "wiki"]
    turns = [{"content": "What is 1 + 1?"}, {"content": "2"}]
    lines = [json.dumps({"kind": kind, "turns": turns}) for kind in kinds]
    sets = data._corpus_job((0, lines))
    assert {name: len(rows) for name, rows in sets.items()} == {
        "corpus": 1, "story": 1, "code": 2, "validation": 1,
    }  # fmt: skip


def test_some_conversations_are_whole_ones() -> None:
    tokens = data.Tokens.join([np.full(n, n, np.uint16) for n in range(1, 41)])
    some = tokens.some(0.25, np.random.default_rng(1))
    assert len(some.lengths) == 10
    assert len(set(some.lengths)) == 10
    assert some.flat.tolist() == np.repeat(some.lengths, some.lengths).tolist()


@pytest.mark.parametrize("kind", sorted(data.COUNTS))
def test_no_phrasing_is_above_a_fifth_of_a_percent(kind: str) -> None:
    n = 20_000
    examples = data.exact_examples(11, kind, n, WORDS)
    most = Counter(e.skeleton for e in examples).most_common(1)[0][1]
    mix = CORPUS_ROWS + sum(data.COUNTS.values())
    assert most / n * data.COUNTS[kind] / mix <= 0.002


def test_unseen_words_and_held_phrasings_leave_the_training_set() -> None:
    for e in every_kind(300):
        if e.kind in ("spell", "letters") and "cherry" in e.turns[0].user:
            assert e.is_held
        if e.skeleton.startswith(ALWAYS_HELD):
            assert e.is_held
    shares = [e.is_held for e in every_kind(300)]
    assert 0.03 < sum(shares) / len(shares) < 0.3


def test_sums_are_right() -> None:
    for e in data.exact_examples(2, "calculation", 500, WORDS):
        text = e.turns[0].answer.replace(" is ", " = ").rstrip(".")
        left, right = text.split(" = ")
        a, sign, b = left.split(" ")
        value = {"+": int(a) + int(b), "-": int(a) - int(b), "x": int(a) * int(b)}
        assert int(right) == (int(a) // int(b) if sign == "/" else value[sign])
        assert e.want == right
        assert e.turns[0].think is not None
        assert right in e.turns[0].think


def test_python_answers_print_what_they_say() -> None:
    for e in data.exact_examples(4, "python", 60, WORDS):
        code = e.turns[0].answer.split("```")[1].removeprefix("python\n")
        said = [
            line.split("  # ")[1] for line in code.splitlines() if line.startswith("print(")
        ]
        printed: list[str] = []
        exec(code, {"print": lambda x, into=printed: into.append(str(x))})
        assert printed == said


def test_own_identity_replaces_the_corpus_one() -> None:
    row = {"kind": "chat", "turns": [{"content": "Hi"}, {"content": "I'm a computer program."}]}
    assert data.to_example(row) is None
    said = Counter(
        "ds4-nano" in t.answer
        for e in data.exact_examples(1, "persona", 500, WORDS)
        for t in e.turns
    )
    assert said[True] > 100
