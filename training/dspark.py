"""The DSpark draft in PyTorch, training form: many blocks of many sequences at once.

A block drafted at anchor position n sees the ring (captures of positions max(0, n - W)..n - 1)
and all its own rows [anchor, noise, ...] at positions n..n + B - 1 (reference alignment).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training import ops
from training.config import ModelConfig
from training.layout import Rotary
from training.model import Block, Target, normal


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the drafted blocks stand: `anchors (B, A)` positions, `ids (B, A, block)`."""

    anchors: Tensor
    ids: Tensor

    @staticmethod
    def at(tokens: Tensor, anchors: Tensor, c: ModelConfig) -> Blocks:
        """Blocks of sequences `(B, T)` at the given anchor positions."""
        first = tokens.gather(1, anchors)[..., None]
        noise = first.new_full((*anchors.shape, c.block_size - 1), c.noise_id)
        return Blocks(anchors, torch.cat([first, noise], -1))


class Heads(nn.Module):
    """A module with one parameter, so that names match the file (`markov_head.markov_w1`)."""

    def __init__(self, **params: nn.Parameter):
        super().__init__()
        for name, value in params.items():
            setattr(self, name, value)


class Draft(nn.Module):
    """Three V4 stages over the target's captures, a Markov head and a confidence head."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.c = c
        m, dim, r = c.n_streams, c.dim, c.markov_rank
        n_taps = len(c.target_layers)
        self.mtp = nn.ModuleList(Block(c, 0, False, c.n_stages) for _ in range(c.n_stages))
        first, last = self.mtp[0], self.mtp[-1]
        first.main_proj = normal(dim, n_taps * dim, std=(n_taps * dim) ** -0.5)
        first.main_norm = nn.Parameter(torch.ones(dim))
        last.norm = nn.Parameter(torch.ones(dim))
        last.hc_head_fn = normal(m, m * dim, std=(m * dim) ** -0.5)
        last.hc_head_base = nn.Parameter(torch.zeros(m))
        last.hc_head_scale = nn.Parameter(torch.full((1,), 0.1))
        last.markov_head = Heads(
            markov_w1=normal(c.n_vocab, r, std=0.3), markov_w2=normal(c.n_vocab, r, std=0.01)
        )
        last.confidence_head = Heads(proj=normal(1, dim + r, std=0.01))

    @torch.no_grad()
    def start_from(self, target: Target) -> None:
        """Begin with the target's last blocks and output head instead of noise."""
        for stage, block in zip(self.mtp, target.blk[-self.c.n_stages :], strict=True):
            theirs = dict(block.named_parameters())
            for name, p in stage.named_parameters():
                if name in theirs:
                    p.copy_(theirs[name])
        last = self.mtp[-1]
        last.norm.copy_(target.output_norm)
        for part in ("fn", "base", "scale"):
            getattr(last, f"hc_head_{part}").copy_(getattr(target, f"output_hc_{part}"))

    def main_rows(self, captures: Tensor, dtype: torch.dtype) -> Tensor:
        """`(N, 3 D)` float32 captures to main features `(N, D)`."""
        first = self.mtp[0]
        rows = ops.linear(captures.to(dtype), first.main_proj)
        return ops.rms(rows, first.main_norm, self.c.rms_eps).to(dtype)

    def hidden(
        self, embed: Tensor, main: Tensor, blocks: Blocks, rotary: Rotary, sim: bool
    ) -> Tensor:
        """Pre-norm states `(B*A*block, D)` float32.

        Args:
            embed: `(V, D)` the target's embedding.
            main: `(B, T, D)` main features of every position (only those < anchor are seen).
            blocks: where to draft.
            rotary: rotation tables of the target.
            sim: FP8 round trip of context and block rows.
        """
        c = self.c
        ids = blocks.ids.reshape(-1)
        step = torch.arange(c.block_size, device=ids.device)
        cs = rotary.at((blocks.anchors[..., None] + step).reshape(-1), False)
        n_seq, n_tok = main.shape[:2]
        pos = torch.arange(n_tok, device=ids.device)
        cs_ring = rotary.at(pos.repeat(n_seq), False)
        gap = blocks.anchors[..., None] - pos
        ring = ((gap >= 1) & (gap <= c.window)).repeat_interleave(c.block_size, 1)
        mask = torch.cat([ring, ring.new_ones(*ring.shape[:2], c.block_size)], -1)[:, :, None]
        x = embed[ids].to(main.dtype)[:, None].expand(-1, c.n_streams, -1).contiguous()
        for stage in self.mtp:
            ctx = ops.kv_rows(
                main.flatten(0, 1), stage.attn_kv, stage.attn_kv_a_norm, cs_ring, c.rms_eps, sim
            ).view(n_seq, n_tok, -1)
            row, post, mix = stage.pre(x, "attn")
            y = self._attend(stage, row, ctx, cs, mask, sim)
            x = ops.hc_post(y, x, post, mix)
            row, post, mix = stage.pre(x, "ffn")
            y, weight = stage.moe(row, ids)
            stage.load = (weight.detach() > 0).float().sum(0)
            x = ops.hc_post(y, x, post, mix)
        last = self.mtp[-1]
        parts = (last.hc_head_fn, last.hc_head_base, last.hc_head_scale)
        return ops.hc_head(x, *parts, last.hc_sizes())

    def _attend(self, stage: Block, row: Tensor, ctx: Tensor, cs, mask: Tensor, sim: bool):
        c, b = self.c, self.c.block_size
        q, _, own = stage.project(row, cs, sim)
        n_seq, d = ctx.shape[0], c.head_dim
        far = (q.reshape(n_seq, -1, d) @ ctx.transpose(1, 2)).view(
            n_seq, -1, c.n_heads, ctx.shape[1]
        )
        own = own.view(-1, b, d)
        near = (q.reshape(-1, b * c.n_heads, d) @ own.transpose(1, 2)).view(*far.shape[:3], b)
        scores = torch.cat([far, near], -1) * d**-0.5
        weight = ops.softmax_sink(scores, mask, stage.attn_sinks)
        w_far, w_near = weight[..., :-b], weight[..., -b:]
        o = (w_far.reshape(n_seq, -1, ctx.shape[1]) @ ctx).view(-1, c.n_heads, d)
        o = o + (w_near.reshape(-1, b * c.n_heads, b) @ own).view(-1, c.n_heads, d)
        return ops.output_rows(o, stage.attn_output_a, stage.attn_output_b, cs, c.n_groups)

    def base_logits(self, h: Tensor, head: Tensor, dtype: torch.dtype) -> Tensor:
        """Logits `(N, V)` before the Markov bias."""
        rows = ops.rms(h, self.mtp[-1].norm, self.c.rms_eps).to(dtype)
        return ops.linear(rows, head)

    def markov(self, prev: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Bias `(N, V)` and embedding `(N, r)` of the previous token."""
        heads = self.mtp[-1].markov_head
        e = heads.markov_w1[prev]
        return ops.linear(e.to(dtype), heads.markov_w2), e

    def confidence(self, h: Tensor, e: Tensor) -> Tensor:
        """Confidence logits `(N,)` from pre-norm states and Markov embeddings."""
        return torch.cat([h, e], -1).float() @ self.mtp[-1].confidence_head.proj.float()[0]

    def propose(self, h: Tensor, head: Tensor, anchor: Tensor, dtype: torch.dtype) -> tuple:
        """Greedy left-to-right drafting.

        Args:
            h: `(M, block, D)` states of M blocks; anchor: `(M,)` ids.

        Returns:
            tokens `(M, block)`, logits `(M, block, V)`, base logits, confidence logits.
        """
        m, b = h.shape[:2]
        base = self.base_logits(h.flatten(0, 1), head, dtype).view(m, b, -1)
        prev, tokens, full, conf = anchor, [], [], []
        for i in range(b):
            bias, e = self.markov(prev, dtype)
            full.append(base[:, i] + bias)
            conf.append(self.confidence(h[:, i], e))
            prev = full[-1].argmax(-1)
            tokens.append(prev)
        return torch.stack(tokens, 1), torch.stack(full, 1), base, torch.stack(conf, 1)
