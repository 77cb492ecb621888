"""The model's arithmetic as functions over flat rows `(N, ...)`, so that one compiled graph
serves every layer and every batch shape of equal N.

Float32 islands: norms, hyper-connections, router, compressor pooling, softmax. Matrix products
run in the dtype of their row input (bf16 on the GPU, float32 in tests).
Shapes: N rows, D width, m streams, H heads, d head size, E experts, F expert width, c row size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from training import quant


def rms(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """RMS norm over the last axis in float32; no weight gives the unweighted form."""
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def linear(x: Tensor, w: Tensor) -> Tensor:
    """`x @ w.T` in the dtype of x."""
    return x @ w.to(x.dtype).T


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the last 2*len(cos) channels, interleaved pairs; cos, sin broadcast over x."""
    rd = 2 * cos.shape[-1]
    plain, rotary = x[..., :-rd], x[..., -rd:].float().unflatten(-1, (-1, 2))
    a, b = rotary[..., 0], rotary[..., 1]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([plain, turned.to(x.dtype)], -1)


def hc_pre(
    x: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm: Tensor, sizes: tuple[Any, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Collapse streams `(N, m, D)`; returns normed rows (N, D), post (N, m), C (N, m, m)."""
    rounds, hc_eps, eps = sizes
    m = x.shape[1]
    wide = x.float()
    flat = wide.flatten(1)
    z = (flat @ fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
    pre = torch.sigmoid(z[:, :m] * scale[0] + base[:m]) + hc_eps
    post = 2.0 * torch.sigmoid(z[:, m : 2 * m] * scale[1] + base[m : 2 * m])
    c = (z[:, 2 * m :] * scale[2] + base[2 * m :]).unflatten(1, (m, m))
    c = torch.softmax(c, -1) + hc_eps
    c = c / (c.sum(1, keepdim=True) + hc_eps)
    for _ in range(rounds - 1):
        c = c / (c.sum(2, keepdim=True) + hc_eps)
        c = c / (c.sum(1, keepdim=True) + hc_eps)
    row = (pre[:, :, None] * wide).sum(1)
    return rms(row, norm, eps).to(x.dtype), post, c


def hc_post(y: Tensor, x: Tensor, post: Tensor, c: Tensor) -> Tensor:
    """`X'[k] = post[k] y + sum_j C[j, k] X[j]`."""
    wide = x.float()
    mixed = (c[:, :, :, None] * wide[:, :, None, :]).sum(1)
    return (mixed + post[:, :, None] * y.float()[:, None, :]).to(x.dtype)


def hc_head(
    x: Tensor, fn: Tensor, base: Tensor, scale: Tensor, sizes: tuple[Any, ...]
) -> Tensor:
    """Output collapse: no post, no mixing. Returns `(N, D)` float32."""
    _, hc_eps, eps = sizes
    wide = x.float()
    flat = wide.flatten(1)
    z = (flat @ fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
    pre = torch.sigmoid(z * scale[0] + base) + hc_eps
    return (pre[:, :, None] * wide).sum(1)


def queries(
    x: Tensor, q_a: Tensor, q_norm: Tensor, q_b: Tensor, cs: tuple[Tensor, Tensor], dims: Any
) -> tuple[Tensor, Tensor]:
    """Low-rank query path; returns q `(N, H, d)` rotated and qr `(N, q_lora)`."""
    head_dim, eps = dims
    qr = rms(linear(x, q_a), q_norm, eps).to(x.dtype)
    q = rms(linear(qr, q_b).unflatten(1, (-1, head_dim)), None, eps)
    return rope(q, cs[0][:, None], cs[1][:, None]).to(x.dtype), qr


def kv_rows(
    x: Tensor, w: Tensor, norm: Tensor, cs: tuple[Tensor, Tensor], eps: float, fp8: bool
) -> Tensor:
    """The row that is key and value at once, `(N, d)`."""
    kv = rope(rms(linear(x, w), norm, eps), cs[0], cs[1])
    if fp8:
        kv = quant.fp8_head(kv, 2 * cs[0].shape[-1])
    return kv.to(x.dtype)


def compress4(
    x: Tensor, w: Tensor, gate: Tensor, ape: Tensor, norm: Tensor, first: Tensor, eps: float
) -> Tensor:
    """Overlapping rows of ratio 4 before rotation: `(N/4, c)` float32.

    `first (N/4,)` marks the first group of a sequence, whose previous group does not exist.
    """
    c = norm.shape[0]
    kv = linear(x, w).float().unflatten(0, (-1, 4))
    g = linear(x, gate).float().unflatten(0, (-1, 4)) + ape
    gone = first[:, None, None]
    kv_prev = torch.roll(kv[..., :c], 1, 0)
    g_prev = torch.roll(g[..., :c], 1, 0).masked_fill(gone, float("-inf"))
    kvs = torch.cat([kv_prev.masked_fill(gone, 0.0), kv[..., c:]], 1)
    weight = torch.softmax(torch.cat([g_prev, g[..., c:]], 1), 1)
    return rms((weight * kvs).sum(1), norm, eps)


def compress128(
    x: Tensor, w: Tensor, gate: Tensor, ape: Tensor, norm: Tensor, eps: float
) -> Tensor:
    """Rows of ratio 128 before rotation; x `(M, 128, D)` closed groups -> `(M, c)` float32."""
    kv = linear(x, w).float()
    g = linear(x, gate).float() + ape
    return rms((torch.softmax(g, 1) * kv).sum(1), norm, eps)


def rotate_rows(rows: Tensor, cs: tuple[Tensor, Tensor], fp8: bool, like: Tensor) -> Tensor:
    """RoPE of compressed rows at their first token, then the FP8 round trip."""
    rows = rope(rows, cs[0], cs[1])
    if fp8:
        rows = quant.fp8_head(rows, 2 * cs[0].shape[-1])
    return rows.to(like.dtype)


def softmax_sink(scores: Tensor, mask: Tensor, sink: Tensor) -> Tensor:
    """Softmax of `(..., T, H, S)` with the sink in the denominator; mask: True = see."""
    s = scores.float().masked_fill(~mask, float("-inf"))
    sink = sink[:, None]
    top = torch.maximum(s.amax(-1, keepdim=True), sink)
    e = torch.exp(s - top)
    return (e / (e.sum(-1, keepdim=True) + torch.exp(sink - top))).to(scores.dtype)


def output_rows(
    o: Tensor, o_a: Tensor, o_b: Tensor, cs: tuple[Tensor, Tensor], n_groups: int
) -> Tensor:
    """Inverse rotation and grouped output projection of `(N, H, d)`."""
    o = rope(o, cs[0][:, None], -cs[1][:, None])
    grouped = o.flatten(1).unflatten(1, (n_groups, -1)).transpose(0, 1)
    u = torch.bmm(grouped, o_a.to(o.dtype).unflatten(0, (n_groups, -1)).transpose(1, 2))
    return linear(u.transpose(0, 1).flatten(1), o_b)


def route(
    x: Tensor, gate: Tensor, bias: Tensor | None, chosen: Tensor | None, sizes: tuple[Any, ...]
) -> Tensor:
    """Weights of the routed experts, `(N, E)` float32, zero where not chosen."""
    used, scale = sizes
    s = torch.sqrt(F.softplus(x.float() @ gate.T))
    if chosen is None:
        biased = s.detach() if bias is None else s.detach() + bias
        chosen = torch.topk(biased, used, -1).indices
    picked = s.gather(1, chosen)
    picked = picked / picked.sum(-1, keepdim=True) * scale
    return torch.zeros_like(s).scatter(1, chosen, picked)


def experts(x: Tensor, weight: Tensor, routed: Any, shared: Any, limit: float) -> Tensor:
    """Routed and shared experts as one wide product (every expert computed, most weighted 0).

    `routed` = (gate, up `(E, F, D)`, down `(E, D, F)`), `shared` the same without E.
    """
    gate = torch.cat([routed[0].flatten(0, 1), shared[0]])
    up = torch.cat([routed[1].flatten(0, 1), shared[1]])
    down = torch.cat([routed[2].transpose(1, 2).flatten(0, 1), shared[2].T])
    a = linear(x, gate).float().clamp(max=limit)
    b = linear(x, up).float().clamp(-limit, limit)
    n_experts, width = routed[0].shape[:2]
    share = weight[:, :, None].expand(-1, n_experts, width).flatten(1)
    share = torch.cat([share, share.new_ones(x.shape[0], shared[0].shape[0])], 1)
    h = (F.silu(a) * b * share).to(x.dtype)
    return h @ down.to(x.dtype)


def token_loss(h: Tensor, norm: Tensor, head: Tensor, targets: Tensor, eps: float) -> Tensor:
    """Cross-entropy of each row, `(N,)` float32, from collapsed states h `(N, D)` float32."""
    rows = rms(h, norm, eps).to(torch.bfloat16 if h.is_cuda else h.dtype)
    logits = linear(rows, head).float()
    picked = logits.gather(1, targets[:, None]).squeeze(1)
    return torch.logsumexp(logits, -1) - picked


_COMPILED = [
    "hc_pre",
    "hc_post",
    "hc_head",
    "queries",
    "kv_rows",
    "compress4",
    "rotate_rows",
    "output_rows",
    "route",
    "experts",
    "softmax_sink",
    "token_loss",
]
_EAGER = {name: globals()[name] for name in _COMPILED}


def use_compiled(*, is_softmax_dynamic: bool = True) -> None:
    """Replace the functions of this module by compiled ones (call once per process).

    `is_softmax_dynamic`: one graph for all lengths instead of one for each.
    """
    torch._dynamo.config.cache_size_limit = 64
    torch._dynamo.config.accumulated_cache_size_limit = 512
    for name in _COMPILED:
        globals()[name] = torch.compile(
            _EAGER[name], dynamic=is_softmax_dynamic and name == "softmax_sink"
        )


def use_eager() -> None:
    """Back to the uncompiled functions."""
    globals().update(_EAGER)


@contextmanager
def eager() -> Iterator[None]:
    """Within: the uncompiled functions (generation, evaluation)."""
    now = {name: globals()[name] for name in _COMPILED}
    globals().update(_EAGER)
    try:
        yield
    finally:
        globals().update(now)
