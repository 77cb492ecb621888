"""Positions, rotation tables and visibility masks of one batch shape `(B, T)`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from training.config import ModelConfig

CosSin = tuple[Tensor, Tensor]


def frequencies(c: ModelConfig, compressed: bool) -> Tensor:
    """Angle per position of each pair, float64 `(rope_dim / 2,)`; YaRN if compressed."""
    i = torch.arange(c.rope_dim // 2, dtype=torch.float64)
    if not compressed:
        return c.rope_base ** (-2 * i / c.rope_dim)
    base = c.compress_rope_base
    f = base ** (-2 * i / c.rope_dim)

    def turn(r: float) -> float:
        return (
            c.rope_dim
            * math.log(c.rope_original_ctx / (2 * math.pi * r))
            / (2 * math.log(base))
        )

    low = max(math.floor(turn(c.rope_beta_fast)), 0)
    high = min(math.ceil(turn(c.rope_beta_slow)), c.rope_dim - 1)
    keep = 1 - ((i - low) / max(high - low, 1e-3)).clamp(0, 1)
    return f * keep + f / c.rope_factor * (1 - keep)


class Rotary:
    """cos and sin for any integer positions, both kinds of layer."""

    def __init__(
        self, c: ModelConfig, device: torch.device, dtype: torch.dtype = torch.float32
    ):
        self._freq = {k: frequencies(c, k).to(device) for k in (False, True)}
        self._dtype = dtype

    def at(self, positions: Tensor, compressed: bool) -> CosSin:
        """Tables `(N, rope_dim / 2)` for positions `(N,)`."""
        angle = positions.double()[:, None] * self._freq[compressed]
        return angle.cos().to(self._dtype), angle.sin().to(self._dtype)


class Layout:
    """Everything about a batch shape that does not depend on the tokens.

    Sequences start at position 0 and are padded at the end. T must be a multiple of 4 unless
    the model has no compressed layers; above two windows T must be a multiple of the window to
    use the banded form, else the full form is used.
    """

    def __init__(
        self, c: ModelConfig, rotary: Rotary, n_seq: int, n_tok: int, device: torch.device
    ):
        self.n_seq, self.n_tok = n_seq, n_tok
        w = c.window
        self.banded = n_tok > 2 * w and n_tok % w == 0
        pos = torch.arange(n_tok, device=device)
        flat = pos.repeat(n_seq)
        self.cs = {k: rotary.at(flat, k) for k in (False, True)}
        self.n_rows = {4: n_tok // 4, 128: n_tok // 128}
        self.cs_rows = {
            r: rotary.at((torch.arange(n, device=device) * r).repeat(n_seq), True)
            for r, n in self.n_rows.items()
        }
        self.first4 = (
            torch.arange(n_seq * self.n_rows[4], device=device) % self.n_rows[4]
        ) == 0
        self.row_mask = {
            r: torch.arange(n, device=device)[None] < ((pos + 1) // r)[:, None]
            for r, n in self.n_rows.items()
        }
        if self.banded:
            back = torch.arange(w, device=device)[:, None] + w
            ahead = torch.arange(2 * w, device=device)[None]
            band = (ahead <= back) & (ahead > back - w)
            blocks = band[None].repeat(n_tok // w, 1, 1)
            blocks[0, :, :w] = False
            self.window_mask = blocks.reshape(n_tok, 2 * w)
        else:
            gap = pos[:, None] - pos[None]
            self.window_mask = (gap >= 0) & (gap < w)


def window_scores(q: Tensor, kv: Tensor, w: int, banded: bool) -> Tensor:
    """Scores of q `(B, T, H, d)` against window rows kv `(B, T, d)`: `(B, T, H, S)`.

    Banded: S = 2 w, the previous and the own block of keys. Full: S = T.
    """
    n_seq, n_tok, n_heads, d = q.shape
    if not banded:
        flat = q.reshape(n_seq, n_tok * n_heads, d) @ kv.transpose(1, 2)
        return flat.view(n_seq, n_tok, n_heads, n_tok)
    keys = two_blocks(kv, w)
    qb = q.reshape(-1, w * n_heads, d)
    return (qb @ keys.transpose(1, 2)).view(n_seq, n_tok, n_heads, 2 * w)


def window_mix(weight: Tensor, kv: Tensor, w: int, banded: bool) -> Tensor:
    """Weighted sums `(B, T, H, d)` for weights of `window_scores`' shape."""
    n_seq, n_tok, n_heads, s = weight.shape
    d = kv.shape[-1]
    if not banded:
        return (weight.reshape(n_seq, n_tok * n_heads, s) @ kv).view(n_seq, n_tok, n_heads, d)
    out = weight.reshape(-1, w * n_heads, s) @ two_blocks(kv, w)
    return out.view(n_seq, n_tok, n_heads, d)


def two_blocks(kv: Tensor, w: int) -> Tensor:
    """`(B, T, d)` -> `(B * T/w, 2 w, d)`: each block of keys with the block before it."""
    blocks = kv.unflatten(1, (-1, w))
    before = torch.cat([torch.zeros_like(blocks[:, :1]), blocks[:, :-1]], 1)
    return torch.cat([before, blocks], 2).flatten(0, 1)
