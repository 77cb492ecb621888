"""Batched generation with a cache: many conversations in lock step, one position at a time.

All sequences start at position 0 together; a sequence that is still in its prompt is fed its
own tokens. So the position is one number for the whole batch, and compressed rows close
together. For up to 4 * index_topk tokens, where every visible row is attended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from training import ops
from training import tokenizer as tok
from training.layout import Rotary
from training.model import Block, Target


@dataclass(slots=True)
class LayerCache:
    """Rows of one layer; raw projections of the open (and previous) group."""

    kv: Tensor  # (B, T, d)
    rows: Tensor | None = None  # (B, T / r, d)
    raw_kv: Tensor | None = None  # (B, r or 2 r, width) float32
    raw_gate: Tensor | None = None


def new_cache(block: Block, n_seq: int, n_tok: int, dtype: torch.dtype) -> LayerCache:
    """Empty rows for `n_tok` positions."""
    c, r = block.c, block.ratio
    device = block.attn_kv.device
    cache = LayerCache(torch.zeros(n_seq, n_tok, c.head_dim, device=device, dtype=dtype))
    if r and n_tok >= r:
        cache.rows = torch.zeros(n_seq, n_tok // r, c.head_dim, device=device, dtype=dtype)
        width = c.head_dim * (2 if r == 4 else 1)
        shape = (n_seq, 2 * r if r == 4 else r, width)
        cache.raw_kv = torch.zeros(shape, device=device)
        cache.raw_gate = torch.full(shape, float("-inf"), device=device)
    return cache


def close_row(
    block: Block, cache: LayerCache, x: Tensor, p: int, rotary: Rotary, sim: bool
) -> None:
    """Store the raw projections of position p; form the row that p completes."""
    c, r = block.c, block.ratio
    assert cache.rows is not None and cache.raw_kv is not None and cache.raw_gate is not None
    at = p % r + (r if r == 4 else 0)
    if r == 4 and p % 4 == 0:
        cache.raw_kv[:, :4] = cache.raw_kv[:, 4:].clone()
        cache.raw_gate[:, :4] = cache.raw_gate[:, 4:].clone()
    gate = ops.linear(x, block.attn_compressor_gate).float() + block.attn_compressor_ape[p % r]
    cache.raw_kv[:, at] = ops.linear(x, block.attn_compressor_kv).float()
    cache.raw_gate[:, at] = gate
    if (p + 1) % r or p // r >= cache.rows.shape[1]:
        return
    kv, g, d = cache.raw_kv, cache.raw_gate, c.head_dim
    if r == 4:
        kv = torch.cat([kv[:, :4, :d], kv[:, 4:, d:]], 1)
        g = torch.cat([g[:, :4, :d], g[:, 4:, d:]], 1)
    made = ops.rms((torch.softmax(g, 1) * kv).sum(1), block.attn_compressor_norm, c.rms_eps)
    first = torch.full((len(x),), p + 1 - r, device=x.device)
    cache.rows[:, p // r] = ops.rotate_rows(made, rotary.at(first, True), sim, x)


def attend(
    block: Block, cache: LayerCache, x: Tensor, p: int, rotary: Rotary, sim: bool
) -> Tensor:
    """Attention of one position of every sequence, x `(B, D)`."""
    c = block.c
    cs = rotary.at(torch.full((len(x),), p, device=x.device), bool(block.ratio))
    q, _, own = block.project(x, cs, sim)
    cache.kv[:, p] = own
    keys = cache.kv[:, max(0, p + 1 - c.window) : p + 1]
    if cache.rows is not None:
        close_row(block, cache, x, p, rotary, sim)
        keys = torch.cat([keys, cache.rows[:, : (p + 1) // block.ratio]], 1)
    scores = (q @ keys.transpose(1, 2)) * c.head_dim**-0.5
    see = torch.ones(1, 1, 1, dtype=torch.bool, device=x.device)
    weight = ops.softmax_sink(scores[:, None], see, block.attn_sinks)[:, 0]
    return ops.output_rows(
        weight @ keys, block.attn_output_a, block.attn_output_b, cs, c.n_groups
    )


@dataclass(slots=True)
class Generator:
    """Generates with a frozen target.

    `enough`: share of the sequences that must have ended; the others are cut there.
    """

    model: Target
    dtype: torch.dtype
    sim: bool = True
    enough: float = 1.0
    _rotary: Rotary | None = field(default=None)

    def step(self, ids: Tensor, p: int, caches: list[LayerCache]) -> Tensor:
        """Logits `(B, V)` float32 after the tokens `ids (B,)` at position p."""
        model = self.model
        if self._rotary is None:
            self._rotary = Rotary(model.c, ids.device)
        x = model.embed(ids, self.dtype)
        for block, cache in zip(model.blk, caches, strict=True):
            row, post, mix = block.pre(x, "attn")
            x = ops.hc_post(attend(block, cache, row, p, self._rotary, self.sim), x, post, mix)
            row, post, mix = block.pre(x, "ffn")
            x = ops.hc_post(block.moe(row, ids)[0], x, post, mix)
        return model.logits(model.collapse(x), self.dtype).float()

    @torch.no_grad()
    def run(
        self, prompts: list[list[int]], temperature: Tensor, n_new: int, seed: int = 0
    ) -> list[list[int]]:
        """Continue every prompt until the end token or `n_new` tokens.

        Args:
            prompts: token ids; sort by length for speed.
            temperature: `(B,)`, 0 = greedy.

        Returns:
            The new ids of each, end token included where it came.
        """
        device = self.model.token_embd.device
        n_seq, longest = len(prompts), max(map(len, prompts))
        n_tok = (longest + n_new + 3) // 4 * 4
        if n_tok > 4 * self.model.c.index_topk:
            raise ValueError(f"{n_tok} tokens: beyond what is generated without selection")
        table = torch.full((n_seq, n_tok), tok.NOISE_ID)
        for i, prompt in enumerate(prompts):
            table[i, : len(prompt)] = torch.tensor(prompt)
        sizes = torch.tensor([len(x) for x in prompts], device=device)
        table, temperature = table.to(device), temperature.to(device)[:, None]
        done = torch.zeros(n_seq, dtype=torch.bool, device=device)
        caches = [new_cache(b, n_seq, n_tok, self.dtype) for b in self.model.blk]
        rng = torch.Generator(device).manual_seed(seed)
        with ops.eager():
            for p in range(n_tok - 1):
                logits = self.step(table[:, p], p, caches)
                if p + 1 < int(min(map(len, prompts))):
                    continue
                noise = torch.rand(logits.shape, generator=rng, device=device)
                gumbel = -torch.log(-torch.log(noise.clamp(1e-9, 1 - 1e-7)))
                chosen = (logits + temperature * gumbel).argmax(-1)
                is_open = (p + 1 >= sizes) & ~done & (p + 1 < sizes + n_new)
                table[:, p + 1] = torch.where(is_open, chosen, table[:, p + 1])
                done |= is_open & (chosen == tok.EOS_ID)
                is_over = done | (p + 2 >= sizes + n_new)
                if p % 16 == 0 and is_over.float().mean().item() >= self.enough:
                    break
        rows = table.tolist()
        return [
            ended(row[len(x) : len(x) + n_new]) for row, x in zip(rows, prompts, strict=True)
        ]


def ended(ids: list[int]) -> list[int]:
    """Up to and with the end token; without the padding of a sequence that was stopped."""
    if tok.EOS_ID in ids:
        return ids[: ids.index(tok.EOS_ID) + 1]
    return ids[: ids.index(tok.NOISE_ID)] if tok.NOISE_ID in ids else ids
