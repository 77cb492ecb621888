"""Replies in which the target repeats itself: found, marked, and learned to be unlikely.

A very small model that decodes greedily falls into loops. Twice in the last part of its
training it answers training prompts; a token that would complete an n-gram that stands there
too often gets the role `UNLIKELY_ROLE`, for which the trainer adds -log(1 - p) (unlikelihood
training, Welleck et al. 2019, arXiv:1908.04319, equation 2, on the model's own sequences).
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import torch

from training import data
from training.decode import Generator
from training.model import Target
from training.replies import GENERATE_BATCH, MAX_NEW, prompts_of
from training.runlog import Log

N_GRAM = 4
SEEN = {"corpus": 2, "story": 2, "code": 3}
"""How often an n-gram may stand in a reply to prompts of each set; code repeats more."""
ENOUGH = 0.9
SHARES = {"corpus": 0.6, "story": 0.25, "code": 0.15}


def repeats(reply: list[int], may_stand: int) -> list[bool]:
    """For each token, whether the n-gram that it ends came `may_stand` times before."""
    seen: Counter[tuple[int, ...]] = Counter()
    out = []
    for end in range(1, len(reply) + 1):
        gram = tuple(reply[max(0, end - N_GRAM) : end])
        out.append(len(gram) == N_GRAM and seen[gram] >= may_stand)
        seen[gram] += 1
    return out


def marked(prompt: list[int], reply: list[int], may_stand: int) -> np.ndarray | None:
    """A looping reply in the format of `data`, its repeats marked; None if it does not loop."""
    marks = repeats(reply, may_stand)
    if not any(marks):
        return None
    roles = np.array([0] * len(prompt) + [data.UNLIKELY_ROLE * m for m in marks], np.uint16)
    return np.array(prompt + reply, np.uint16) | (roles << data.ROLE_SHIFT)


def collect(
    model: Target,
    mix: dict[str, data.Tokens],
    seconds: float,
    dtype: torch.dtype,
    log: Log,
    seed: int,
) -> data.Tokens:
    """Greedy replies to training prompts for some seconds; those that loop."""
    rng, start = np.random.default_rng(seed), time.monotonic()
    generator = Generator(model, dtype, enough=ENOUGH)
    rows: list[np.ndarray] = []
    n_replies = 0
    while time.monotonic() - start < seconds:
        asked: list[tuple[list[int], int]] = []
        for name in sorted(SHARES.keys() & mix.keys()):
            some = prompts_of(mix[name], rng, int(GENERATE_BATCH * SHARES[name]))
            asked += [(prompt, SEEN[name]) for prompt in some]
        asked.sort(key=lambda one: len(one[0]))
        prompts = [prompt for prompt, _ in asked]
        replies = generator.run(prompts, torch.zeros(len(prompts)), MAX_NEW)
        n_replies += len(replies)
        found = (marked(p, r, n) for (p, n), r in zip(asked, replies, strict=True))
        rows += [row for row in found if row is not None]
    log(event="loops", replies=n_replies, looping=len(rows), seconds=time.monotonic() - start)
    return data.Tokens.join(rows)
