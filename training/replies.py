"""Replies that the frozen target writes itself: what the draft is trained on."""

from __future__ import annotations

import random
import time

import numpy as np
import torch

from training import data, tokenizer
from training.decode import Generator
from training.model import Target
from training.runlog import Log

MAX_PROMPT, MAX_NEW, GENERATE_BATCH = 160, 224, 6144
ENOUGH = 0.92  # the few longest replies would cost as much time as all others


def prompts_of(tokens: data.Tokens, rng: np.random.Generator, n: int) -> list[list[int]]:
    """Conversations cut right before their last reply, as ids."""
    out = []
    for i in rng.permutation(len(tokens.lengths))[: n * 2].tolist():
        raw = tokens.flat[tokens.starts[i] : tokens.starts[i + 1]]
        ids = (raw & data.ID_MASK).tolist()
        heads = [j for j, t in enumerate(ids) if t == tokenizer.ASSISTANT_ID]
        if heads and heads[-1] + 2 <= min(MAX_PROMPT, len(ids)):
            out.append(ids[: heads[-1] + 2])
        if len(out) == n:
            break
    return out


def regenerate(
    model: Target, prompts: list[list[int]], seconds: float, dtype: torch.dtype, log: Log
) -> data.Tokens:
    """Let the target answer, half greedy, half at temperature 0.3 to 1, for some seconds.

    The result is in the token format of `data`: role 2 on generated tokens.
    """
    rng = random.Random(3)
    prompts = sorted(prompts, key=len)
    groups = [prompts[i : i + GENERATE_BATCH] for i in range(0, len(prompts), GENERATE_BATCH)]
    rng.shuffle(groups)
    generator, rows, start = Generator(model, dtype, enough=ENOUGH), [], time.monotonic()
    for i, group in enumerate(groups):
        heat = torch.tensor(
            [0.0 if rng.random() < 0.5 else rng.uniform(0.3, 1.0) for _ in group]
        )
        for prompt, reply in zip(group, generator.run(group, heat, MAX_NEW, i), strict=True):
            ids = np.array(prompt + reply, np.uint16)
            ids[len(prompt) :] |= np.uint16(data.REPLY_ROLE << data.ROLE_SHIFT)
            rows.append(ids)
        if time.monotonic() - start > seconds:
            break
    n = sum(map(len, rows))
    log(
        event="regenerated",
        replies=len(rows),
        n_tokens=n,
        seconds=round(time.monotonic() - start, 1),
    )
    return data.Tokens.join(rows)
