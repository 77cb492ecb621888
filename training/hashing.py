"""Hash-routing tables: which experts a token id always uses in the first layers."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from training.config import ModelConfig


def balanced_tables(c: ModelConfig, counts: Tensor, seed: int) -> list[Tensor]:
    """One `(V, k)` int32 table for each hash layer, so that experts see like many tokens.

    Ids in order of falling frequency take the k least loaded experts, with a little noise so
    that layers and neighbours differ.
    """
    order = counts.argsort(descending=True).tolist()
    weight = (counts.float() + 1.0).tolist()
    tables = []
    for layer in range(c.n_hash_layers):
        rng = random.Random(seed * 1000 + layer)
        load = [0.0] * c.n_experts
        table = torch.zeros(c.n_vocab, c.n_experts_used, dtype=torch.int32)
        for token in order:
            noise = [x + weight[token] * 2 * rng.random() for x in load]
            best = sorted(range(c.n_experts), key=noise.__getitem__)[: c.n_experts_used]
            for e in best:
                load[e] += weight[token]
            table[token] = torch.tensor(best, dtype=torch.int32)
        tables.append(table)
    return tables
