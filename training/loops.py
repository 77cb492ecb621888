"""Replies in which the target repeats itself: found, marked, and learned to be unlikely.

A very small model that decodes greedily falls into loops. Near the end of its training it
answers training prompts; a token that would complete an n-gram for the third time gets the role
`UNLIKELY_ROLE`, for which the trainer adds -log(1 - p) (unlikelihood training, Welleck et al.
2019, arXiv:1908.04319, equation 2, on the model's own sequences).
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

N_GRAM, SEEN = 4, 2
ENOUGH = 0.9
SHARES = {"corpus": 0.85, "code": 0.15}


def repeats(reply: list[int]) -> list[bool]:
    """For each token, whether the n-gram that it ends came `SEEN` times before."""
    seen: Counter[tuple[int, ...]] = Counter()
    out = []
    for end in range(1, len(reply) + 1):
        gram = tuple(reply[max(0, end - N_GRAM) : end])
        out.append(len(gram) == N_GRAM and seen[gram] >= SEEN)
        seen[gram] += 1
    return out


def marked(prompt: list[int], reply: list[int]) -> np.ndarray | None:
    """A looping reply in the format of `data`, its repeats marked; None if it does not loop."""
    marks = repeats(reply)
    if not any(marks):
        return None
    roles = np.array([0] * len(prompt) + [data.UNLIKELY_ROLE * m for m in marks], np.uint16)
    return np.array(prompt + reply, np.uint16) | (roles << data.ROLE_SHIFT)


def collect(
    model: Target, mix: dict[str, data.Tokens], seconds: float, dtype: torch.dtype, log: Log
) -> data.Tokens:
    """Greedy replies to training prompts for some seconds; those that loop."""
    rng, start = np.random.default_rng(11), time.monotonic()
    generator = Generator(model, dtype, enough=ENOUGH)
    rows: list[np.ndarray] = []
    n_replies = 0
    while time.monotonic() - start < seconds:
        prompts: list[list[int]] = []
        for name in SHARES.keys() & mix.keys():
            prompts += prompts_of(mix[name], rng, int(GENERATE_BATCH * SHARES[name]))
        prompts.sort(key=len)
        replies = generator.run(prompts, torch.zeros(len(prompts)), MAX_NEW)
        n_replies += len(replies)
        found = (marked(p, r) for p, r in zip(prompts, replies, strict=True))
        rows += [row for row in found if row is not None]
    log(event="loops", replies=n_replies, looping=len(rows), seconds=time.monotonic() - start)
    return data.Tokens.join(rows)
