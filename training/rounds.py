"""How many drafts the target would accept: greedy speculative rounds over known replies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from training import ops
from training import tokenizer as tok
from training.dspark import Blocks, Draft
from training.layout import Rotary
from training.model import Target, Trace


@dataclass(frozen=True, slots=True)
class Tally:
    """One reply: committed tokens, rounds, and (confidence, was accepted, k) of each draft."""

    n_tokens: int
    n_rounds: int
    outcomes: tuple[tuple[float, bool, int], ...]


@torch.no_grad()
def proposals(
    target: Target, draft: Draft, rows: list[tuple[list[int], int]], dtype: torch.dtype
) -> list[tuple[list[list[int]], list[list[float]]]]:
    """Drafted blocks at every reply position of each (ids, first reply position)."""
    device, c = target.token_embd.device, target.c
    n_tok = (max(len(ids) for ids, _ in rows) + 3) // 4 * 4
    tokens = torch.full((len(rows), n_tok), tok.NOISE_ID)
    for i, (ids, _) in enumerate(rows):
        tokens[i, : len(ids)] = torch.tensor(ids)
    tokens = tokens.to(device)
    n_anchor = max(len(ids) - first for ids, first in rows)
    first = torch.tensor([f for _, f in rows], device=device)[:, None]
    anchors = (first + torch.arange(n_anchor, device=device)).clamp(max=n_tok - 1)
    with ops.eager():
        trace = Trace(want_captures=True)
        target.hidden(tokens, dtype, True, trace)
        main = draft.main_rows(torch.cat(trace.captures, -1), dtype).view(len(rows), n_tok, -1)
        blocks = Blocks.at(tokens, anchors, c)
        h = draft.hidden(target.token_embd, main, blocks, Rotary(c, device), True)
        ids, _, _, conf = draft.propose(
            h.view(-1, c.block_size, c.dim),
            target.output,
            tokens.gather(1, anchors).flatten(),
            dtype,
        )
    shape = (len(rows), n_anchor, c.block_size)
    return list(zip(ids.view(shape).tolist(), conf.view(shape).tolist(), strict=True))


def tally(reply: list[int], drafts: list[list[int]], conf: list[list[float]]) -> Tally:
    """Walk the rounds: the anchor is a reply token, drafts are compared with what followed."""
    at = rounds = 0
    outcomes: list[tuple[float, bool, int]] = []
    while at < len(reply) - 1:
        rest = reply[at + 1 :]
        accepted = 0
        for k, (d, x) in enumerate(zip(drafts[at], rest, strict=False)):
            outcomes.append((conf[at][k], d == x, k))
            if d != x:
                break
            accepted += 1
        at += accepted + 1
        rounds += 1
    return Tally(max(len(reply) - 1, 0), rounds, tuple(outcomes))


def accepted_at(outcomes: list[tuple[float, bool, int]], k: int) -> float:
    """Share of the drafts at block position k that were accepted, of those reached."""
    some = [ok for _, ok, i in outcomes if i == k]
    return round(sum(some) / max(len(some), 1), 3)


def auc(outcomes: list[tuple[float, bool, int]]) -> float:
    """Probability that an accepted draft had the higher confidence than a rejected one."""
    ranked = sorted(outcomes)
    n_yes = sum(ok for _, ok, _ in ranked)
    n_no = len(ranked) - n_yes
    if not n_yes or not n_no:
        return float("nan")
    total = sum(rank for rank, (_, ok, _) in enumerate(ranked, 1) if ok)
    return (total - n_yes * (n_yes + 1) / 2) / (n_yes * n_no)


def calibration(outcomes: list[tuple[float, bool, int]], n_bins: int = 10) -> list[list[float]]:
    """Said against what came true, for bins of equal width that hold any draft.

    Args:
        outcomes: (confidence logit, was accepted, block position) of each draft reached.

    Returns:
        Rows `[mean probability said, share accepted, number of drafts]`.
    """
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(n_bins)]
    for logit, ok, _ in outcomes:
        said = 1 / (1 + math.exp(-logit))
        bins[min(int(said * n_bins), n_bins - 1)].append((said, ok))
    return [
        [
            round(sum(said for said, _ in b) / len(b), 3),
            round(sum(ok for _, ok in b) / len(b), 3),
            len(b),
        ]
        for b in bins
        if b
    ]
