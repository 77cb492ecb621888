"""The training mix: teacher corpus plus exact examples, as token arrays with roles.

A conversation is `BOS [system] (U question A /T answer E)*`; with thinking, `A T thought /T
answer E`. Every stored token carries its role as a *target*: 0 never learned, 1 the user's
text, 2 the reply, 3 what must become unlikely (`loops`). Token in the low 13 bits, role above.
"""

from __future__ import annotations

import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import tokenizers
import zstandard

from training import exact_numbers as numbers
from training import exact_words as words_
from training import tokenizer as tok
from training.example import Example, Turn, digest
from training.persona import persona
from training.pycode import python
from training.thoughts import thought

ROLE_SHIFT, ID_MASK = 13, (1 << 13) - 1
USER_ROLE, REPLY_ROLE, UNLIKELY_ROLE = 1, 2, 3
MAX_TOKENS = 384

# Examples of each exact kind; no phrasing comes above 0.2 % of the mix (tested).
COUNTS = {
    "calculation": 100_000, "word_problem": 14_000, "counting": 30_000, "comparing": 14_000,
    "unit": 18_000, "sort_numbers": 26_000, "sort_words": 12_000, "spelling": 34_000,
    "letters": 26_000, "word_count": 5_000, "calendar": 20_000, "capital": 18_000,
    "persona": 45_000, "python": 30_000,
}  # fmt: skip
SHARE_ALIKE = ("wiki", "wiki_rewrite")
FORMAL = ("code", "code_explain", "list")
"""Kinds of the corpus that form a set of their own, so that they can be drawn more often."""
SETS = {**dict.fromkeys(FORMAL, "code"), "story": "story"}
"""The set of a kind of the corpus; all others form the set `corpus`."""
CORPUS_SETS = ("corpus", "story", "code", "validation")
SYSTEM_TEXTS = (
    "You are a helpful assistant.", "You are ds4-nano, a very small model.", "Answer briefly.",
    "Be friendly.",
    "You are a friendly chat assistant. Keep answers short.", "You help with simple questions.",
    "Answer in simple English.", "You are a patient teacher.",
)  # fmt: skip
NOT_MINE = ("a computer program", "an AI", "a language model", "an artificial")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Conversations back to back: `flat` uint16 (role and id), `starts` int64 (n + 1,)."""

    flat: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @staticmethod
    def join(parts: Iterable[np.ndarray]) -> Tokens:
        """From one array for each conversation."""
        rows = list(parts)
        starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
        flat = np.concatenate(rows) if rows else np.zeros(0, np.uint16)
        return Tokens(flat, starts)

    @staticmethod
    def chain(parts: Sequence[Tokens]) -> Tokens:
        """All conversations of several sets; a set may come more than once."""
        lengths = np.concatenate([t.lengths for t in parts])
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Tokens(np.concatenate([t.flat for t in parts]), starts)

    def some(self, share: float, rng: np.random.Generator) -> Tokens:
        """A random part of the conversations."""
        n = int(len(self.lengths) * share)
        order = rng.permutation(len(self.lengths))[:n]
        return Tokens.join(self.flat[self.starts[i] : self.starts[i + 1]] for i in order)


def read_corpus(path: Path) -> Iterator[dict]:
    """Rows of the corpus, `.jsonl` or `.jsonl.zst`."""
    if path.suffix != ".zst":
        with path.open(encoding="utf-8") as f:
            yield from map(json.loads, f)
        return
    with path.open("rb") as raw:
        reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw)
        yield from map(json.loads, io.TextIOWrapper(reader, encoding="utf-8"))


def to_example(row: dict) -> Example | None:
    """A corpus row, or None where it speaks about itself as something else."""
    texts = [t["content"] for t in row["turns"]]
    answers = texts[1::2]
    if row["kind"] == "chat" and any(n in a for a in answers for n in NOT_MINE):
        return None
    turns = tuple(Turn(u, a) for u, a in zip(texts[::2], answers, strict=False))
    return Example("corpus:" + row["kind"], "", "", turns)


def is_validation(e: Example) -> bool:
    """One corpus prompt in 250, by hash: for the loss that the log shows."""
    return digest("validation:" + e.turns[0].user) % 250 == 0


def common_words(rows: Iterable[Example], n: int) -> list[str]:
    """The commonest plain words of the corpus, for spelling and sorting."""
    seen: Counter[str] = Counter()
    for e in rows:
        for t in e.turns:
            seen.update(
                w
                for w in t.answer.split()
                if 3 <= len(w) <= 9 and w.isascii() and w.islower() and w.isalpha()
            )
    return sorted(w for w, _ in seen.most_common(n))


def choose_unseen(known: Iterable[str], vocab: tok.Vocabulary) -> frozenset[str]:
    """One in twelve of the words that take several tokens in every usual position."""
    bpe = vocab.encoder()

    def is_split(word: str) -> bool:
        return all(len(bpe.encode(text).ids) > 1 for text in (word, " " + word, word.title()))

    return frozenset(w for w in known if digest("unseen:" + w) % 12 == 0 and is_split(w))


def read_words(path: Path) -> words_.Words:
    """The word list that `training.prepare` wrote."""
    raw = json.loads(path.read_text())
    return words_.Words(tuple(raw["all"]), frozenset(raw["unseen"]))


def exact_examples(seed: int, kind: str, n: int, words: words_.Words) -> list[Example]:
    """`n` examples of a kind, held-out topics and phrasings included."""
    rng = random.Random(f"{seed}:{kind}")
    makers = {
        "calculation": numbers.calculation, "word_problem": numbers.word_problem,
        "counting": numbers.counting, "comparing": numbers.comparing, "unit": numbers.unit,
        "sort_numbers": words_.sort_numbers, "calendar": words_.calendar,
        "capital": words_.capital,
        "persona": persona, "python": python,
        "sort_words": partial(words_.sort_words, words=words),
        "spelling": partial(words_.spelling, words=words),
        "letters": partial(words_.letters, words=words),
        "word_count": partial(words_.word_count, words=words),
    }  # fmt: skip
    return [makers[kind](rng) for _ in range(n)]


class Encoder:
    """Turns examples into token arrays."""

    def __init__(self, vocab: tok.Vocabulary):
        self._bpe: tokenizers.Tokenizer = vocab.encoder()

    def texts(self, texts: list[str]) -> list[list[int]]:
        return [e.ids for e in self._bpe.encode_batch_fast(texts, add_special_tokens=False)]

    def encode(self, examples: list[Example], seed: int) -> list[np.ndarray]:
        """One array for each example; thinking and system texts are drawn here."""
        rng = random.Random(seed)
        plans = [self._plan(rng, e) for e in examples]
        flat = self.texts([text for plan in plans for text, _ in plan if text])
        pieces = iter(flat)
        return [self._assemble(plan, pieces) for plan in plans]

    @staticmethod
    def _plan(rng: random.Random, e: Example) -> list[tuple[str, int]]:
        """Pieces (text, what): 0 system, 1 question, 2 thought, 3 answer."""
        is_thinking = rng.random() < (0.13 if e.turns[0].think else 0.08)
        plan = [(rng.choice(SYSTEM_TEXTS) if rng.random() < 0.03 else "", 0)]
        for t in e.turns:
            plan.append((t.user, 1))
            if is_thinking:
                plan.append((t.think or thought(rng, e.kind, t.user), 2))
            plan.append((t.answer, 3))
        return plan

    @staticmethod
    def _assemble(plan: list[tuple[str, int]], pieces: Iterator[list[int]]) -> np.ndarray:
        ids, roles = [tok.BOS_ID], [0]
        has_thought = any(what == 2 for _, what in plan)
        for text, what in plan:
            part = next(pieces) if text else []
            if what == 1:
                part = [tok.USER_ID, *part, tok.ASSISTANT_ID]
                part.append(tok.OPEN_ID if has_thought else tok.CLOSE_ID)
                roles += [0] + [USER_ROLE] * (len(part) - 3) + [0, 0]
            elif what == 2:
                part = [*part, tok.CLOSE_ID]
                roles += [REPLY_ROLE] * len(part)
            elif what == 3:
                part = [*part, tok.EOS_ID]
                roles += [REPLY_ROLE] * len(part)
            else:
                roles += [0] * len(part)
            ids += part
        return (np.array(ids, np.uint16) | (np.array(roles, np.uint16) << ROLE_SHIFT))[
            :MAX_TOKENS
        ]


@dataclass(frozen=True, slots=True)
class Mix:
    """The encoded data. `kinds` maps a set's name to its conversations."""

    train: dict[str, Tokens]
    validation: Tokens

    def save(self, path: Path) -> None:
        """Write as npz, so that the draft's trainer need not encode again."""
        sets = {**self.train, "validation": self.validation}
        np.savez(
            path,
            **{
                f"{k}.{part}": getattr(t, part)
                for k, t in sets.items()
                for part in ("flat", "starts")
            },
        )

    @staticmethod
    def load(path: Path) -> Mix:
        """Read what `save` wrote."""
        with np.load(path) as z:
            names = sorted({k.split(".")[0] for k in z.files})
            sets = {k: Tokens(z[f"{k}.flat"], z[f"{k}.starts"]) for k in names}
        return Mix({k: t for k, t in sets.items() if k != "validation"}, sets["validation"])


_ENCODER: Encoder | None = None


def _start_worker(vocab: tok.Vocabulary) -> None:
    global _ENCODER  # noqa: PLW0603
    _ENCODER = Encoder(vocab)


def _corpus_job(job: tuple[int, list[str]]) -> dict[str, list[np.ndarray]]:
    index, lines = job
    assert _ENCODER is not None
    examples = [e for e in map(to_example, map(json.loads, lines)) if e is not None]
    examples = [e for e in examples if e.kind.removeprefix("corpus:") not in SHARE_ALIKE]
    rows = _ENCODER.encode(examples, index)
    out: dict[str, list[np.ndarray]] = {k: [] for k in CORPUS_SETS}
    for e, row in zip(examples, rows, strict=True):
        name = SETS.get(e.kind.removeprefix("corpus:"), "corpus")
        out["validation" if is_validation(e) else name].append(row)
    return out


def _exact_job(job: tuple[int, str, int, words_.Words]) -> list[np.ndarray]:
    assert _ENCODER is not None
    seed, kind, n, words = job
    return _ENCODER.encode(
        [e for e in exact_examples(seed, kind, n, words) if not e.is_held], seed
    )


def build(
    corpus: Path, vocab: tok.Vocabulary, words: words_.Words, seed: int, workers: int
) -> Mix:
    """Encode everything with a pool of processes."""
    parts = 8
    jobs = [
        (seed * 1000 + i, kind, n // parts, words)
        for kind, n in COUNTS.items()
        for i in range(parts)
    ]
    lines = (json.dumps(r) for r in read_corpus(corpus))
    chunks = enumerate(iter(lambda: list(itertools.islice(lines, 8000)), []))
    with get_context("fork").Pool(workers, _start_worker, (vocab,)) as pool:
        exact = pool.map_async(_exact_job, jobs, chunksize=1)
        by_kind: dict[str, list[np.ndarray]] = {
            k: [] for k in (*CORPUS_SETS, "persona", "exact")
        }
        for part in pool.imap(_corpus_job, chunks):
            for name, rows in part.items():
                by_kind[name] += rows
        for job, rows in zip(jobs, exact.get(), strict=True):
            by_kind["persona" if job[1] == "persona" else "exact"] += rows
    held = Tokens.join(by_kind.pop("validation"))
    return Mix({k: Tokens.join(v) for k, v in by_kind.items()}, held)
