"""Batches of a fixed number of rows N = B * T, drawn from token arrays that live on the device.

Most batches hold single conversations of like length; the others hold long chats made of
several conversations, so that later turns, topic changes, far positions and selection are
learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training import data
from training import tokenizer as tok

ROWS = 73728
BUCKETS = (32, 48, 64, 96, 128, 192, 256, 384)
PACKED = {256: 0.18, 512: 0.18, 1024: 0.08, 2048: 0.03}
"""Share of the tokens that goes into chats of this length."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`tokens (B, T)` ids; `roles (B, T)` of each token as a target, 0 for padding."""

    tokens: Tensor
    roles: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.tokens.shape[0], self.tokens.shape[1]


@dataclass(frozen=True, slots=True)
class Plan:
    """Row starts and ends in the flat token array, for one length T."""

    n_tok: int
    starts: np.ndarray
    ends: np.ndarray


class Source:
    """All conversations of a mix on one device, and plans of epochs over them."""

    def __init__(self, sets: dict[str, data.Tokens], device: torch.device, rows: int = ROWS):
        self.sets, self._device, self._n_rows = sets, device, rows

    def also(self, name: str, tokens: data.Tokens) -> Source:
        """The same with one more set."""
        return Source({**self.sets, name: tokens}, self._device, self._n_rows)

    def epoch(self, seed: int, share: dict[str, float]) -> Iterator[Batch]:
        """Batches of one pass.

        Args:
            seed: order and packing.
            share: fraction (may exceed 1) of each set that takes part.
        """
        rng = np.random.default_rng(seed)
        chosen = self._choose(rng, share)
        flat, starts, ends = self._gather(chosen)
        plans = list(self._plans(rng, starts, ends))
        jobs = [(p, i) for p in plans for i in range(len(p.starts) * p.n_tok // self._n_rows)]
        on_device = torch.from_numpy(flat.astype(np.int32)).to(self._device)
        for j in rng.permutation(len(jobs)):
            plan, i = jobs[j]
            n = self._n_rows // plan.n_tok
            yield self._cut(on_device, plan, slice(i * n, (i + 1) * n))

    def _choose(
        self, rng: np.random.Generator, share: dict[str, float]
    ) -> list[tuple[str, np.ndarray]]:
        out = []
        for name, tokens in self.sets.items():
            n = len(tokens.lengths)
            want = int(n * share.get(name, 1.0))
            order = np.concatenate([rng.permutation(n) for _ in range(want // n + 1)])[:want]
            out.append((name, order))
        return out

    def _gather(self, chosen: list[tuple[str, np.ndarray]]) -> tuple[np.ndarray, ...]:
        """Chosen conversations back to back in the order of the sets."""
        parts, starts, ends, at = [], [], [], 0
        for name, order in chosen:
            t = self.sets[name]
            parts.append(t.flat)
            starts.append(t.starts[:-1][order] + at)
            ends.append(t.starts[1:][order] + at)
            at += len(t.flat)
        return np.concatenate(parts), np.concatenate(starts), np.concatenate(ends)

    def _plans(self, rng, starts, ends) -> Iterator[Plan]:
        order = rng.permutation(len(starts))
        lengths = (ends - starts)[order]
        total, used, at = lengths.sum(), np.cumsum(lengths), 0
        for n_tok, part in PACKED.items():
            stop = int(np.searchsorted(used, used[at - 1] * (at > 0) + part * total))
            yield packed(starts[order[at:stop]], ends[order[at:stop]], n_tok)
            at = stop
        rest = order[at:]
        lengths = (ends - starts)[rest]
        floor = 0
        for n_tok in BUCKETS:
            rows = rest[(lengths > floor) & (lengths <= n_tok)]
            floor = n_tok
            yield Plan(n_tok, starts[rows][:, None], ends[rows][:, None])

    def _cut(self, flat: Tensor, plan: Plan, rows: slice) -> Batch:
        """Rows of a plan as padded tensors; a row is a list of spans put end to end."""
        starts = torch.from_numpy(plan.starts[rows]).to(self._device)
        sizes = torch.from_numpy(plan.ends[rows] - plan.starts[rows]).to(self._device)
        upto = sizes.cumsum(1)
        pos = torch.arange(plan.n_tok, device=self._device)
        pos = pos.expand(len(starts), -1).contiguous()
        span = torch.searchsorted(upto, pos, right=True)
        is_real = span < starts.shape[1]
        span = span.clamp(max=starts.shape[1] - 1)
        before = (upto - sizes).gather(1, span)
        index = (starts.gather(1, span) + pos - before).masked_fill(~is_real, 0)
        raw = flat[index]
        tokens = (raw & data.ID_MASK).long().masked_fill(~is_real, tok.NOISE_ID)
        roles = (raw >> data.ROLE_SHIFT).masked_fill(~is_real, 0)
        return Batch(tokens, roles)


def packed(starts: np.ndarray, ends: np.ndarray, n_tok: int) -> Plan:
    """Rows of several conversations: later ones lose their BOS, the last is cut."""
    rows: list[list[tuple[int, int]]] = []
    row: list[tuple[int, int]] = []
    room = n_tok
    for start, e in zip(starts.tolist(), ends.tolist(), strict=True):
        s = start + 1 if row else start
        take = min(room, e - s)
        row.append((s, s + take))
        room -= take
        if room == 0:
            rows.append(row)
            row, room = [], n_tok
    width = max(map(len, rows), default=1)
    out = np.zeros((len(rows), width, 2), np.int64)
    for i, spans in enumerate(rows):
        out[i, : len(spans)] = spans
    return Plan(n_tok, out[..., 0], out[..., 1])


def validation_batches(tokens: data.Tokens, device: torch.device, rows: int) -> list[Batch]:
    """Up to two padded batches of T = 256 of held-out conversations."""
    source = Source({"all": tokens}, device, rows)
    n = rows // 256
    keep = np.flatnonzero(tokens.lengths <= 256)[: 2 * n]
    plan = Plan(256, tokens.starts[:-1][keep][:, None], tokens.starts[1:][keep][:, None])
    flat = torch.from_numpy(tokens.flat.astype(np.int32)).to(device)
    return [source._cut(flat, plan, slice(i, i + n)) for i in range(0, len(keep) - n + 1, n)]
