"""The V4 target in PyTorch, training form: whole sequences at once.

Parameters are named as in the GGUF (less `.weight`). The forward is dtype-agnostic: float32 or
float64 on the CPU for checks, bf16 rows on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from training import ops, quant
from training.config import ModelConfig
from training.layout import Layout, Rotary, window_mix, window_scores


@dataclass(slots=True)
class Trace:
    """What a forward reports besides its result."""

    want_captures: bool = False
    want_index_loss: bool = False
    captures: list[Tensor] = field(default_factory=list)  # (N, D) float32, per target layer
    loads: dict[int, Tensor] = field(default_factory=dict)  # layer -> (E,) picks
    index_losses: list[Tensor] = field(default_factory=list)  # (N,) float32 each
    outputs: list[Tensor] | None = None  # (N, m, D) after each layer, if a list is given


def normal(*shape: int, std: float) -> nn.Parameter:
    """Parameter drawn from N(0, std^2)."""
    return nn.Parameter(torch.randn(*shape) * std)


class Block(nn.Module):
    """One V4 block: attention with its compressor and indexer, and the experts."""

    def __init__(self, c: ModelConfig, ratio: int, hashed: bool, depth: int):
        super().__init__()
        self.c, self.ratio, self.hashed = c, ratio, hashed
        dim, d, m = c.dim, c.head_dim, c.n_streams
        wide = c.n_heads * d // c.n_groups
        out_std = (2 * depth) ** -0.5
        for name in ("attn", "ffn"):
            setattr(self, f"hc_{name}_fn", normal(m * (m + 2), m * dim, std=(m * dim) ** -0.5))
            setattr(self, f"hc_{name}_scale", nn.Parameter(torch.full((3,), 0.1)))
            base = torch.randn(m * (m + 2)) * 0.2
            base[2 * m :] += 3.0 * torch.eye(m).flatten()
            base[:m] -= 1.0
            setattr(self, f"hc_{name}_base", nn.Parameter(base))
            setattr(self, f"{name}_norm", nn.Parameter(torch.ones(dim)))
        self.attn_q_a = normal(c.q_lora, dim, std=dim**-0.5)
        self.attn_q_a_norm = nn.Parameter(torch.ones(c.q_lora))
        self.attn_q_b = normal(c.n_heads * d, c.q_lora, std=c.q_lora**-0.5)
        self.attn_kv = normal(d, dim, std=dim**-0.5)
        self.attn_kv_a_norm = nn.Parameter(torch.ones(d))
        self.attn_sinks = nn.Parameter(torch.zeros(c.n_heads))
        self.attn_output_a = normal(c.n_groups * c.o_lora, wide, std=wide**-0.5)
        rank = c.n_groups * c.o_lora
        self.attn_output_b = normal(dim, rank, std=rank**-0.5 * out_std)
        n, width = c.n_experts, c.expert_dim
        self.ffn_gate_inp = normal(n, dim, std=dim**-0.5)
        self.ffn_gate_exps = normal(n, width, dim, std=dim**-0.5)
        self.ffn_up_exps = normal(n, width, dim, std=dim**-0.5)
        self.ffn_down_exps = normal(n, dim, width, std=width**-0.5 * out_std)
        shared = width * c.n_shared
        self.ffn_gate_shexp = normal(shared, dim, std=dim**-0.5)
        self.ffn_up_shexp = normal(shared, dim, std=dim**-0.5)
        self.ffn_down_shexp = normal(dim, shared, std=shared**-0.5 * out_std)
        if hashed:
            table = torch.zeros(c.n_vocab, c.n_experts_used, dtype=torch.int32)
            self.register_buffer("ffn_gate_tid2eid", table)
        else:
            self.register_buffer("exp_probs_b", torch.zeros(n))
        if ratio:
            self._add_compressor(ratio)

    def _add_compressor(self, ratio: int) -> None:
        c = self.c
        width = c.head_dim * (2 if ratio == 4 else 1)
        self.attn_compressor_ape = normal(ratio, width, std=0.02)
        self.attn_compressor_kv = normal(width, c.dim, std=c.dim**-0.5)
        self.attn_compressor_gate = normal(width, c.dim, std=c.dim**-0.5)
        self.attn_compressor_norm = nn.Parameter(torch.ones(c.head_dim))
        if ratio != 4:
            return
        self.indexer = nn.Module()
        self.indexer.attn_q_b = normal(
            c.index_heads * c.index_dim, c.q_lora, std=c.q_lora**-0.5
        )
        self.indexer.proj = normal(c.index_heads, c.dim, std=c.dim**-0.5)
        self.indexer_compressor_ape = normal(4, 2 * c.index_dim, std=0.02)
        self.indexer_compressor_kv = normal(2 * c.index_dim, c.dim, std=c.dim**-0.5)
        self.indexer_compressor_gate = normal(2 * c.index_dim, c.dim, std=c.dim**-0.5)
        self.indexer_compressor_norm = nn.Parameter(torch.ones(c.index_dim))

    def hc_sizes(self) -> tuple[int, float, float]:
        """(rounds, hc_eps, rms_eps) for the hyper-connection functions."""
        return self.c.sinkhorn_rounds, self.c.hc_eps, self.c.rms_eps

    def pre(self, x: Tensor, which: str) -> tuple[Tensor, Tensor, Tensor]:
        """Collapse and norm for the branch `attn` or `ffn`."""
        parts = (getattr(self, f"hc_{which}_{p}") for p in ("fn", "base", "scale"))
        return ops.hc_pre(x, *parts, getattr(self, f"{which}_norm"), self.hc_sizes())

    def moe(self, x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Experts of rows x `(N, D)`; returns y and the routing weights `(N, E)`."""
        chosen = self.ffn_gate_tid2eid[ids].long() if self.hashed else None
        bias = None if self.hashed else self.exp_probs_b
        sizes = (self.c.n_experts_used, self.c.expert_scale)
        weight = ops.route(x, self.ffn_gate_inp, bias, chosen, sizes)
        routed = (self.ffn_gate_exps, self.ffn_up_exps, self.ffn_down_exps)
        shared = (self.ffn_gate_shexp, self.ffn_up_shexp, self.ffn_down_shexp)
        return ops.experts(x, weight, routed, shared, self.c.swiglu_limit), weight

    def project(self, x: Tensor, cs: tuple[Tensor, Tensor], fp8: bool) -> tuple[Tensor, ...]:
        """q `(N, H, d)`, qr, and the row's own key `(N, d)`."""
        c = self.c
        dims = (c.head_dim, c.rms_eps)
        q, qr = ops.queries(x, self.attn_q_a, self.attn_q_a_norm, self.attn_q_b, cs, dims)
        kv = ops.kv_rows(x, self.attn_kv, self.attn_kv_a_norm, cs, c.rms_eps, fp8)
        return q, qr, kv

    def rows(self, x: Tensor, lay: Layout, fp8: bool) -> Tensor:
        """Compressed rows `(B, C, d)` of this layer for flat x `(N, D)`."""
        ape, w, gate, norm = (
            getattr(self, f"attn_compressor_{p}") for p in ("ape", "kv", "gate", "norm")
        )
        if self.ratio == 4:
            made = ops.compress4(x, w, gate, ape, norm, lay.first4, self.c.rms_eps)
        else:
            n = lay.n_rows[128] * 128
            groups = x.view(lay.n_seq, lay.n_tok, -1)[:, :n].reshape(-1, 128, x.shape[-1])
            made = ops.compress128(groups, w, gate, ape, norm, self.c.rms_eps)
        made = ops.rotate_rows(made, lay.cs_rows[self.ratio], fp8, x)
        return made.view(lay.n_seq, -1, self.c.head_dim)

    def index_scores(self, x: Tensor, qr: Tensor, lay: Layout, fp4: bool) -> Tensor:
        """Indexer scores `(B, T, C)` float32; inputs are cut from the graph."""
        c = self.c
        x, qr = x.detach(), qr.detach()
        cs = lay.cs[True]
        iq = ops.linear(qr, self.indexer.attn_q_b).unflatten(1, (c.index_heads, c.index_dim))
        iq = ops.rope(iq.float(), cs[0][:, None], cs[1][:, None])
        parts = (
            getattr(self, f"indexer_compressor_{p}") for p in ("kv", "gate", "ape", "norm")
        )
        ik = ops.rope(ops.compress4(x, *parts, lay.first4, c.rms_eps), *lay.cs_rows[4])
        if fp4:
            had = quant.hadamard(c.index_dim, x.device)
            iq, ik = quant.fp4_rotated(iq, had), quant.fp4_rotated(ik, had)
        w = ops.linear(x, self.indexer.proj).float() * (c.index_dim * c.index_heads) ** -0.5
        shape = (lay.n_seq, lay.n_tok * c.index_heads, c.index_dim)
        ik = ik.view(lay.n_seq, -1, c.index_dim)
        dots = iq.to(x.dtype).view(shape) @ ik.to(x.dtype).transpose(1, 2)
        dots = torch.relu(dots.float()).view(lay.n_seq, lay.n_tok, c.index_heads, -1)
        return (w.view(lay.n_seq, lay.n_tok, -1, 1) * dots).sum(2)

    def attention(self, x: Tensor, lay: Layout, sim: bool, trace: Trace) -> Tensor:
        """Attention branch of flat normed rows x `(N, D)`."""
        c, w = self.c, self.c.window
        cs = lay.cs[bool(self.ratio)]
        q, qr, kv = self.project(x, cs, sim)
        q = q.view(lay.n_seq, lay.n_tok, c.n_heads, c.head_dim)
        kv = kv.view(lay.n_seq, lay.n_tok, c.head_dim)
        scores = window_scores(q, kv, w, lay.banded)
        mask = lay.window_mask[None, :, None]
        n_window = scores.shape[-1]
        has_rows = self.ratio and lay.n_rows[self.ratio]
        if has_rows:
            rows = self.rows(x, lay, sim)
            seen = lay.row_mask[self.ratio][None]
            index = None
            if self.ratio == 4 and (trace.want_index_loss or rows.shape[1] > c.index_topk):
                index = self.index_scores(x, qr, lay, sim)
                seen = select(index, seen, c.index_topk)
            far = q.reshape(lay.n_seq, -1, c.head_dim) @ rows.transpose(1, 2)
            far = far.view(*q.shape[:3], -1)
            scores = torch.cat([scores, far], -1)
            mask = torch.cat([mask.expand(seen.shape[0], -1, -1, -1), seen[:, :, None]], -1)
        weight = ops.softmax_sink(scores * c.head_dim**-0.5, mask, self.attn_sinks)
        o = window_mix(weight[..., :n_window], kv, w, lay.banded)
        if has_rows:
            far_w = weight[..., n_window:]
            o = o + (far_w.reshape(lay.n_seq, -1, far_w.shape[-1]) @ rows).view_as(o)
            if index is not None and trace.want_index_loss:
                trace.index_losses.append(index_loss(index, far_w, lay.row_mask[4]))
        return ops.output_rows(
            o.flatten(0, 1), self.attn_output_a, self.attn_output_b, cs, c.n_groups
        )

    def forward(self, x: Tensor, ids: Tensor, lay: Layout, sim: bool, trace: Trace) -> tuple:
        """Streams `(N, m, D)` to streams; also the routing weights `(N, E)`."""
        row, post, mix = self.pre(x, "attn")
        x = ops.hc_post(self.attention(row, lay, sim, trace), x, post, mix)
        row, post, mix = self.pre(x, "ffn")
        y, weight = self.moe(row, ids)
        return ops.hc_post(y, x, post, mix), weight


def select(index: Tensor, seen: Tensor, topk: int) -> Tensor:
    """Mask `(B, T, C)` of the best `topk` visible rows of each query."""
    if index.shape[-1] <= topk:
        return seen
    ranked = index.detach().masked_fill(~seen, float("-inf"))
    best = torch.topk(ranked, topk, -1).indices
    return torch.zeros_like(ranked, dtype=torch.bool).scatter(-1, best, True) & seen


def index_loss(index: Tensor, far_w: Tensor, seen: Tensor) -> Tensor:
    """KL of the indexer's softmax to the attention it serves, `(N,)`; 0 without visible rows.

    Target: head-summed attention weights over the compressed rows, normalised (the sparse
    attention warm-up of DeepSeek-V3.2).
    """
    p = far_w.detach().float().sum(2)
    p = p / p.sum(-1, keepdim=True).clamp_min(1e-9)
    log_q = torch.log_softmax(index.masked_fill(~seen[None], -1e30), -1)
    terms = p * (p.clamp_min(1e-9).log() - log_q)
    return terms.masked_fill(~seen[None], 0.0).sum(-1).flatten()


class Target(nn.Module):
    """The V4 target model."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.c = c
        m, dim = c.n_streams, c.dim
        self.token_embd = normal(c.n_vocab, dim, std=0.5)
        self.blk = nn.ModuleList(
            Block(c, c.compress_ratios[i], i < c.n_hash_layers, c.n_layers)
            for i in range(c.n_layers)
        )
        self.output_hc_fn = normal(m, m * dim, std=(m * dim) ** -0.5)
        self.output_hc_base = nn.Parameter(torch.zeros(m))
        self.output_hc_scale = nn.Parameter(torch.full((1,), 0.1))
        self.output_norm = nn.Parameter(torch.ones(dim))
        self.output = normal(c.n_vocab, dim, std=0.01)
        self._rotary: Rotary | None = None
        self._layouts: dict[tuple[int, int], Layout] = {}

    def layout(self, n_seq: int, n_tok: int) -> Layout:
        """Cached tables for a batch shape."""
        key = (n_seq, n_tok)
        if key not in self._layouts:
            device = self.token_embd.device
            if self._rotary is None:
                dtype = (
                    torch.float64 if self.token_embd.dtype == torch.float64 else torch.float32
                )
                self._rotary = Rotary(self.c, device, dtype)
            self._layouts[key] = Layout(self.c, self._rotary, n_seq, n_tok, device)
        return self._layouts[key]

    def embed(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Streams `(N, m, D)` of flat ids: plain copies of the embedding."""
        rows = self.token_embd[ids].to(dtype)
        return rows[:, None].expand(-1, self.c.n_streams, -1).contiguous()

    def collapse(self, x: Tensor) -> Tensor:
        """Head collapse `(N, D)` float32, before the output norm."""
        parts = (self.output_hc_fn, self.output_hc_base, self.output_hc_scale)
        return ops.hc_head(x, *parts, self.blk[0].hc_sizes())

    def hidden(self, tokens: Tensor, dtype: torch.dtype, sim: bool, trace: Trace) -> Tensor:
        """Collapsed states `(N, D)` of tokens `(B, T)`; fills the trace."""
        lay = self.layout(*tokens.shape)
        ids = tokens.reshape(-1)
        x = self.embed(ids, dtype)
        for i, block in enumerate(self.blk):
            x, weight = block(x, ids, lay, sim, trace)
            if not block.hashed:
                trace.loads[i] = (weight.detach() > 0).float().sum(0)
            if trace.want_captures and i in self.c.target_layers:
                trace.captures.append(x.float().mean(1))
            if trace.outputs is not None:
                trace.outputs.append(x)
        return self.collapse(x)

    def logits(self, h: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Logits `(N, V)` of collapsed states."""
        rows = ops.rms(h, self.output_norm, self.c.rms_eps).to(dtype)
        return ops.linear(rows, self.output)
