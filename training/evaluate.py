"""The bars that need no chat program: endings, loops, exact answers, accepted drafts.

python -m training.evaluate --pair DIR --heldout heldout-prompts.jsonl --words words.json
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from training import data, export, rounds
from training import tokenizer as tok
from training.config import NANO
from training.decode import Generator
from training.dspark import Draft
from training.exact_words import Words
from training.example import Example
from training.model import Target

EXACT = {
    "sum": ("calculation", "sum"),
    "sort": ("sort_numbers", "sort"),
    "count": ("counting", "count"),
    "spell": ("spelling", "spell"),
    "capital": ("capital", "capital"),
}
MAX_NEW = 280
SEED = 777


def prompt_ids(encoder: data.Encoder, user: str) -> list[int]:
    """`BOS U user A /T`: a first turn without thinking."""
    return [tok.BOS_ID, tok.USER_ID, *encoder.texts([user])[0], tok.ASSISTANT_ID, tok.CLOSE_ID]


def has_loop(ids: list[int]) -> bool:
    """A 4-gram of tokens that comes four times, in prose or in code."""
    grams = Counter(tuple(ids[i : i + 4]) for i in range(len(ids) - 3))
    return bool(grams) and max(grams.values()) >= 4


def is_exact(example: Example, reply: str) -> bool:
    """Whether the reply states the wanted answer (as whole words)."""
    want = example.want or ""
    if example.kind == "sort" or example.kind == "count":
        return reply.strip().rstrip(".") == want
    return re.search(rf"(?<![\w-]){re.escape(want)}(?![\w-])", reply) is not None


def held_examples(seed: int, words: Words, n: int) -> dict[str, list[Example]]:
    """Held-out examples for each exact kind, and for Python."""
    out = {}
    for name, (maker, kind) in {**EXACT, "python": ("python", "python")}.items():
        pool = data.exact_examples(seed, maker, n * 60, words)
        out[name] = [e for e in pool if e.is_held and e.kind == kind][
            : 50 if name == "python" else n
        ]
    return out


def runs(reply: str) -> bool:
    """Whether the first code block runs, and prints what its first comment promises."""
    found = re.search(r"```(?:python)?\n(.*?)```", reply, re.DOTALL)
    if not found:
        return False
    code = found[1]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", code],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode:
        return False
    promised = re.search(r"print\(.*\)\s*#\s*(.+)", code)
    return not promised or promised[1].strip() in done.stdout


class Judge:
    """A pair, ready to answer."""

    def __init__(self, pair: Path, device: torch.device):
        self.target, self.draft = Target(NANO), Draft(NANO)
        export.fill(self.target, pair / "base.gguf")
        if (pair / "support.gguf").exists():
            export.fill(self.draft, pair / "support.gguf")
        self.target.to(device).requires_grad_(requires_grad=False)
        self.draft.to(device).requires_grad_(requires_grad=False)
        self.vocab = export.read_vocabulary(pair / "base.gguf")
        self.encoder = data.Encoder(self.vocab)
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def answer(
        self, users: list[str], max_new: int = MAX_NEW
    ) -> list[tuple[list[int], list[int]]]:
        """Greedy replies: (prompt ids, reply ids) in the order given."""
        prompts = [prompt_ids(self.encoder, u)[: 500 - max_new] for u in users]
        replies = Generator(self.target, self.dtype).run(
            prompts, torch.zeros(len(users)), max_new
        )
        return list(zip(prompts, replies, strict=True))

    def tallies(self, answers: Iterable[tuple[list[int], list[int]]]) -> list[rounds.Tally]:
        """Speculative rounds over the replies."""
        out = []
        rows = [(p + r, len(p)) for p, r in answers]
        for i in range(0, len(rows), 32):
            part = rows[i : i + 32]
            made = rounds.proposals(self.target, self.draft, part, self.dtype)
            out += [
                rounds.tally(ids[n:], d, c) for (ids, n), (d, c) in zip(part, made, strict=True)
            ]
        return out


def accept_length(tallies: Iterable[rounds.Tally]) -> float:
    """Committed tokens for each round."""
    some = list(tallies)
    return sum(t.n_tokens for t in some) / max(sum(t.n_rounds for t in some), 1)


def evaluate(
    judge: Judge, prompts: list[dict[str, Any]], words: Words, n_exact: int
) -> dict[str, Any]:
    """All figures as one JSON object, with transcripts."""
    users = [p["turns"][0]["content"] for p in prompts]
    kinds = [p["kind"] for p in prompts]
    answers = judge.answer(users)
    texts = [judge.vocab.decode(r[:-1] if r and r[-1] == tok.EOS_ID else r) for _, r in answers]
    ends = [bool(r) and r[-1] == tok.EOS_ID for _, r in answers]
    loops = [has_loop(r) for _, r in answers]
    unfit = [
        [kind, user, "loop" if loop else "no end", text]
        for kind, user, end, loop, text in zip(kinds, users, ends, loops, texts, strict=True)
        if loop or not end
    ]
    by_kind: dict[str, list[rounds.Tally]] = defaultdict(list)
    tallies = judge.tallies(answers)
    for k, t in zip(kinds, tallies, strict=True):
        by_kind[k].append(t)
    outcomes = [o for t in tallies for o in t.outcomes]
    exact, python = {}, 0.0
    shown = []
    for name, examples in held_examples(SEED, words, n_exact).items():
        got = judge.answer([e.turns[0].user for e in examples], 160)
        replies = [judge.vocab.decode(r[:-1]) for _, r in got]
        by_kind[f"exact {name}"] = judge.tallies(got)
        if name == "python":
            python = sum(map(runs, replies)) / max(len(replies), 1)
        else:
            exact[name] = sum(map(is_exact, examples, replies)) / max(len(examples), 1)
        shown += [
            [e.turns[0].user, r, e.want] for e, r in zip(examples[:6], replies, strict=False)
        ]
    return {
        "n_prompts": len(prompts),
        "ends_without_loop": sum(e and not x for e, x in zip(ends, loops, strict=True))
        / len(prompts),
        "exact": exact,
        "exact_mean": sum(exact.values()) / len(exact),
        "python_runs": python,
        "accept_length": {k: round(accept_length(v), 3) for k, v in sorted(by_kind.items())},
        "accept_length_all": accept_length(tallies),
        "confidence_auc": rounds.auc(outcomes),
        "calibration": rounds.calibration(outcomes),
        "accepted_by_position": [
            rounds.accepted_at(outcomes, k) for k in range(NANO.block_size)
        ],
        "transcripts": [[k, u, t] for k, u, t in zip(kinds, users, texts, strict=True)][:40],
        "exact_shown": shown,
        "unfit": unfit,
    }


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--pair", type=Path, required=True, help="folder with base.gguf and support.gguf"
    )
    p.add_argument("--heldout", type=Path, required=True)
    p.add_argument("--words", type=Path, required=True)
    p.add_argument("--prompts", type=int, default=200)
    p.add_argument("--exact", type=int, default=40, help="examples of each exact kind")
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    start = time.monotonic()
    rows = [json.loads(line) for line in a.heldout.read_text().splitlines()]
    rows = [r for r in rows if r["kind"] not in data.SHARE_ALIKE]
    random.Random(SEED).shuffle(rows)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    judge = Judge(a.pair, device)
    result = evaluate(judge, rows[: a.prompts], data.read_words(a.words), a.exact)
    result["seconds"] = round(time.monotonic() - start, 1)
    if a.out:
        a.out.write_text(json.dumps(result, indent=1))
    print(
        json.dumps(
            {
                k: v
                for k, v in result.items()
                if k not in ("transcripts", "exact_shown", "unfit")
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
