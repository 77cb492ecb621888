"""The target model over a whole sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.maths import (
    attend,
    fp4_round_trip,
    fp8_round_trip,
    hadamard,
    hyper_head,
    hyper_post,
    hyper_pre,
    mixture,
    plain_frequencies,
    project_out,
    rms_norm,
    rotate,
    yarn_frequencies,
)
from tests.reference.pair import Array, ReferencePair, Sizes, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOutput:
    """Everything about every position: T tokens, V ids, D wide."""

    logits: Array  # (T, V)
    captures: Array  # (T, captured layers * D), what the draft module reads
    layers: Array  # (layers, T, m, D), streams behind each layer
    router_margin: Array  # (T,), last chosen over first not chosen expert, least of all layers
    index_margin: Array  # (T,), the same of compressed rows


def run_target(pair: ReferencePair, ids: Sequence[int], *, round_trips: bool) -> TargetOutput:
    """Evaluate `ids` from position 0."""
    sizes, embedding = pair.sizes, pair.base["token_embd.weight"]
    n = len(ids)
    streams = np.stack([np.tile(embedding[i], (sizes.streams, 1)) for i in ids])
    router_margin, index_margin = np.full(n, math.inf), np.full(n, math.inf)
    behind = []
    for index in range(len(sizes.ratios)):
        layer = Layer(pair, index, round_trips)
        branch = [hyper_pre(x, layer.w, "hc_attn", sizes) for x in streams]
        normed = [layer.norm(x, "attn_norm") for x, _, _ in branch]
        outputs, margins = layer.attention(normed)
        index_margin = np.minimum(index_margin, margins)
        for t, (_, post, mixing) in enumerate(branch):
            streams[t] = hyper_post(outputs[t], streams[t], post, mixing)
        for t in range(n):
            x, post, mixing = hyper_pre(streams[t], layer.w, "hc_ffn", sizes)
            stored = layer.w["ffn_gate_tid2eid.weight"] if index < sizes.hash_layers else None
            chosen = None if stored is None else stored[ids[t]]
            y, margin = mixture(layer.norm(x, "ffn_norm"), layer.w, sizes, chosen)
            router_margin[t] = min(router_margin[t], margin)
            streams[t] = hyper_post(y, streams[t], post, mixing)
        behind.append(streams.copy())
    logits = [head_logits(pair, hyper_head(x, pair.base, "output_hc", sizes)) for x in streams]
    captured = [behind[layer].mean(axis=1) for layer in sizes.captured]
    return TargetOutput(
        logits=np.stack(logits),
        captures=np.concatenate(captured, axis=1),
        layers=np.stack(behind),
        router_margin=router_margin,
        index_margin=index_margin,
    )


def head_logits(pair: ReferencePair, h: Array) -> Array:
    """Logits of one token."""
    normed = rms_norm(h, pair.base["output_norm.weight"], pair.sizes.rms_eps)
    out: Array = pair.base["output.weight"] @ normed
    return out


class Layer:
    """One target layer."""

    def __init__(self, pair: ReferencePair, index: int, round_trips: bool) -> None:
        self.sizes: Sizes = pair.sizes
        self.w: Weights = pair.layer(index)
        self.ratio = self.sizes.ratios[index]
        self.round_trips = round_trips
        has_rows = self.ratio > 0
        self.angles = (
            yarn_frequencies(self.sizes) if has_rows else plain_frequencies(self.sizes)
        )

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.w[f"{name}.weight"], self.sizes.rms_eps)

    def key(self, x: Array, position: int) -> Array:
        """The window row of a token."""
        row = self.norm(self.w["attn_kv.weight"] @ x, "attn_kv_a_norm")
        row = rotate(row, position, self.angles)
        return fp8_round_trip(row, self.sizes.rope_dim) if self.round_trips else row

    def query_rank(self, x: Array) -> Array:
        """The low-rank query that heads and indexer share."""
        return self.norm(self.w["attn_q_a.weight"] @ x, "attn_q_a_norm")

    def query(self, low: Array, position: int) -> Array:
        heads = (self.w["attn_q_b.weight"] @ low).reshape(self.sizes.heads, -1)
        return rotate(rms_norm(heads, None, self.sizes.rms_eps), position, self.angles)

    def attention(self, xs: list[Array]) -> tuple[Array, Array]:
        """Outputs `(T, D)`, and the margin of each token's choice of compressed rows."""
        window = np.stack([self.key(x, t) for t, x in enumerate(xs)])
        rows = self.compressed(xs, "attn_compressor", self.sizes.head_dim)
        if self.round_trips:
            rows = [fp8_round_trip(row, self.sizes.rope_dim) for row in rows]
        index_rows = self.index_rows(xs)
        outputs, margins = [], np.full(len(xs), math.inf)
        for t, x in enumerate(xs):
            low = self.query_rank(x)
            visible = (t + 1) // self.ratio if self.ratio else 0
            chosen: Sequence[int] = range(visible)
            if self.ratio == 4:
                chosen, margins[t] = self.choose(x, low, t, index_rows[:visible])
            first = max(0, t - self.sizes.window + 1)
            keys = np.stack([*window[first : t + 1], *(rows[j] for j in chosen)])
            o = attend(self.query(low, t), keys, self.w["attn_sinks.weight"])
            o = rotate(o, t, self.angles, back=True)
            outputs.append(project_out(o, self.w, self.sizes))
        return np.stack(outputs), margins

    def compressed(self, xs: list[Array], name: str, size: int) -> list[Array]:
        """All compressed rows that the sequence closes, each `(size,)`."""
        if not self.ratio:
            return []
        position_bias = self.w[f"{name}_ape.weight"]
        kv = [self.w[f"{name}_kv.weight"] @ x for x in xs]
        gate = [
            self.w[f"{name}_gate.weight"] @ x + position_bias[t % self.ratio]
            for t, x in enumerate(xs)
        ]
        out = []
        for j in range(len(xs) // self.ratio):
            own = range(self.ratio * j, self.ratio * (j + 1))
            if self.ratio == 4:
                before = range(max(0, 4 * (j - 1)), 4 * j)
                entries = [kv[t][:size] for t in before] + [kv[t][size:] for t in own]
                scores = [gate[t][:size] for t in before] + [gate[t][size:] for t in own]
            else:
                entries, scores = [kv[t] for t in own], [gate[t] for t in own]
            raised = np.exp(np.stack(scores) - np.max(scores, axis=0))
            row = (raised / raised.sum(axis=0) * np.stack(entries)).sum(axis=0)
            row = self.norm(row, f"{name}_norm")
            out.append(rotate(row, self.ratio * j, self.angles))
        return out

    def index_rows(self, xs: list[Array]) -> Array:
        if self.ratio != 4:
            return np.zeros((0, self.sizes.index_dim))
        rows = self.compressed(xs, "indexer_compressor", self.sizes.index_dim)
        stacked = np.stack(rows) if rows else np.zeros((0, self.sizes.index_dim))
        return self.spread(stacked)

    def spread(self, x: Array) -> Array:
        """Hadamard and FP4 on indexer rows or queries, if simulated."""
        if not self.round_trips:
            return x
        return fp4_round_trip(x @ hadamard(self.sizes.index_dim))

    def choose(self, x: Array, low: Array, t: int, rows: Array) -> tuple[Sequence[int], float]:
        """Indices of the rows to attend, and the last score in minus the first out."""
        sizes = self.sizes
        queries = (self.w["indexer.attn_q_b.weight"] @ low).reshape(sizes.index_heads, -1)
        queries = self.spread(rotate(queries, t, self.angles))
        scale = 1.0 / math.sqrt(sizes.index_dim * sizes.index_heads)
        weights = self.w["indexer.proj.weight"] @ x * scale
        scores = np.zeros(len(rows))
        for head in range(sizes.index_heads):
            scores += weights[head] * np.maximum(rows @ queries[head], 0.0)
        order = np.argsort(-scores, kind="stable")
        chosen = order[: sizes.index_topk]
        margin = math.inf
        if len(rows) > sizes.index_topk:
            margin = float(scores[chosen[-1]] - scores[order[sizes.index_topk]])
        return chosen.tolist(), margin
