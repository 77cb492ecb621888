"""Routed experts and the shared expert. Formulas: `spec/architecture.md` section 7."""

from __future__ import annotations

from dataclasses import dataclass, replace

import mlx.core as mx

from ds4chat.ops import moe_kernels, wide_kernels
from ds4chat.ops.blocks import Blocks
from ds4chat.ops.dispatch import current
from ds4chat.ops.linear import Fused, Linear
from ds4chat.ops.moe_kernels import ExpertBlocks
from ds4chat.ops.qmatmul import MAX_ROWS, BlockWeight, has_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWeights:
    """Experts of one layer.

    `gate_up` holds one matrix (gate and up side by side) or two; `down` one. `shared` is None
    when the shared expert stands as the last of the stack.
    """

    gate_up: tuple[Linear, ...]
    down: Linear
    shared_gate_up: Fused | None
    shared_down: Linear | None
    n_routed: int
    limit: float


def route_scores(logits: mx.array) -> mx.array:
    """`sqrt(softplus(z))`, float32."""
    return mx.sqrt(mx.logaddexp(logits.astype(mx.float32), 0.0))


def top_experts(scores: mx.array, bias: mx.array, k: int) -> mx.array:
    """`(L, k)` ids of the largest `scores + bias`, best first, ties to the lowest id."""
    return mx.argsort(-(scores + bias), axis=-1)[:, :k]


def route_weights(scores: mx.array, expert_idx: mx.array, scale: float) -> mx.array:
    """`(L, k)` weights: the chosen scores, normalised to sum `scale`."""
    chosen = mx.take_along_axis(scores, expert_idx, axis=-1)
    return chosen / chosen.sum(axis=-1, keepdims=True) * scale


def _activate(gate: mx.array, up: mx.array, limit: float) -> mx.array:
    """Clamped SwiGLU in float32: the gate has no lower clamp."""
    gate = mx.minimum(gate.astype(mx.float32), limit)
    up = mx.clip(up.astype(mx.float32), -limit, limit)
    return gate * mx.sigmoid(gate) * up


def _gate_and_up(parts: list[mx.array]) -> tuple[mx.array, mx.array]:
    if len(parts) == 2:
        return parts[0], parts[1]
    half = parts[0].shape[-1] // 2
    return parts[0][..., :half], parts[0][..., half:]


def run_experts(
    x: mx.array, expert_idx: mx.array, weights: mx.array, w: ExpertWeights
) -> mx.array:
    """`(L, D)` through each row's experts and the shared one: `(L, D)` float32.

    A row's experts are added in its own router order, the shared expert last.
    """
    shared = _shared_by_kernels(x, w)
    total = _by_kernels(x, expert_idx, weights, w, shared)
    if total is not None:
        return total if shared is not None else _add_shared(total, x, w)
    if w.shared_down is None:
        shape = (x.shape[0], 1)
        shared_idx = mx.full(shape, w.n_routed, dtype=expert_idx.dtype)
        expert_idx = mx.concatenate([expert_idx, shared_idx], axis=1)
        weights = mx.concatenate([weights, mx.ones(shape)], axis=1)
    rows = x[:, None, None, :]
    gate, up = _gate_and_up([part.expert(rows, expert_idx) for part in w.gate_up])
    hidden = _activate(gate, up, w.limit).astype(x.dtype)
    out = w.down.expert(hidden, expert_idx).squeeze(2).astype(mx.float32)
    total = (weights[:, None, :] @ out).squeeze(1)
    return _add_shared(total, x, w) if shared is None else total + shared


def _by_kernels(
    x: mx.array,
    expert_idx: mx.array,
    weights: mx.array,
    w: ExpertWeights,
    shared: mx.array | None,
) -> mx.array | None:
    """The routed sum from blocks, plus `shared`, which a pass of few rows may have.

    None where no kernels are for such weights or rows.
    """
    parts = (*w.gate_up, w.down)
    if current().is_reference or len(parts) != 3:
        return None
    stacks = [
        ExpertBlocks(blocks=part.raw, quant=part.quant, n_in=part.n_in)
        for part in parts
        if isinstance(part, Blocks) and has_kernel(part.quant, part.n_in)
    ]
    if len(stacks) != 3:
        return None
    gate, up, down = stacks
    picks = expert_idx.astype(mx.int32)
    if x.shape[0] > MAX_ROWS:
        return wide_kernels.experts(x, picks, weights, gate, up, down, w.limit)
    if {"moe_gate_up", "moe_down"} & _given_up():
        return None
    hidden = moe_kernels.gate_up(x, picks, gate, up, w.limit)
    return moe_kernels.down(hidden, picks, weights, down, shared)


def _given_up() -> set[str]:
    """Kernels that this device could not build, without the names of formats."""
    names = current().fallbacks
    return {
        kind for kind in ("moe_gate_up", "moe_down") if any(n.startswith(kind) for n in names)
    }


def _add_shared(total: mx.array, x: mx.array, w: ExpertWeights) -> mx.array:
    if w.shared_down is None or w.shared_gate_up is None:
        return total
    gate, up = _gate_and_up(w.shared_gate_up(x))
    hidden = _activate(gate, up, w.limit).astype(x.dtype)
    return total + w.shared_down(hidden).astype(mx.float32)


def _shared_by_kernels(x: mx.array, w: ExpertWeights) -> mx.array | None:
    """The shared expert of up to 8 rows in two launches: `(L, D)` float32, or None."""
    if current().is_reference or x.shape[0] > MAX_ROWS or w.shared_gate_up is None:
        return None
    parts = [
        part
        for part in (*w.shared_gate_up.parts, w.shared_down)
        if isinstance(part, Blocks) and has_kernel(part.quant, part.n_in)
    ]
    if len(parts) != 3:
        return None
    gate, up = (BlockWeight(blocks=p.raw, quant=p.quant, n_in=p.n_in) for p in parts[:2])
    hidden = moe_kernels.shared_hidden(x, gate, up, w.limit)
    return None if hidden is None else replace(parts[2], out_dtype=mx.float32)(hidden)
