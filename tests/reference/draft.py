"""One greedy DSpark block behind a prefix whose captures are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tests.reference.maths import (
    attend,
    fp8_round_trip,
    hyper_head,
    hyper_post,
    hyper_pre,
    mixture,
    plain_frequencies,
    project_out,
    rms_norm,
    rotate,
)
from tests.reference.pair import Array, ReferencePair, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOutput:
    """One block of B rows; row i proposes the token at position n + 1 + i."""

    tokens: list[int]
    base_logits: Array  # (B, V), before the Markov term
    logits: Array  # (B, V)
    confidence_logits: Array  # (B,), before the sigmoid
    router_margin: float  # least of all rows and stages


def draft(
    pair: ReferencePair, captures: Array, anchor: int, *, round_trips: bool
) -> DraftOutput:
    """Draft behind `captures` `(n, layers * D)` of positions 0..n-1; `anchor` stands at n."""
    sizes, n = pair.sizes, len(captures)
    embedding, head = pair.base["token_embd.weight"], pair.base["output.weight"]
    last, start = pair.stage(sizes.stages - 1), max(0, n - sizes.window)
    ids = [anchor] + [sizes.noise] * (sizes.block - 1)
    streams = np.stack([np.tile(embedding[i], (sizes.streams, 1)) for i in ids])
    margin = math.inf
    for index in range(sizes.stages):
        context = draft_context(pair, captures, index, round_trips=round_trips)
        stage = Stage(pair, index, round_trips)
        margin = min(margin, stage.run(streams, context, start))
    h = [hyper_head(x, last, "hc_head", sizes) for x in streams]
    base = np.stack([head @ rms_norm(x, last["norm.weight"], sizes.rms_eps) for x in h])
    tokens, logits, confidence, previous = [], [], [], anchor
    for row in range(sizes.block):
        e = last["markov_head.markov_w1.weight"][previous]
        logits.append(base[row] + last["markov_head.markov_w2.weight"] @ e)
        both = np.concatenate([h[row], e])
        confidence.append(last["confidence_head.proj.weight"].reshape(-1) @ both)
        previous = int(np.argmax(logits[-1]))
        tokens.append(previous)
    return DraftOutput(
        tokens=tokens,
        base_logits=base,
        logits=np.stack(logits),
        confidence_logits=np.array(confidence),
        router_margin=margin,
    )


def draft_context(
    pair: ReferencePair, captures: Array, stage: int, *, round_trips: bool
) -> Array:
    """A stage's keys `(up to W, d)` of the last committed positions."""
    sizes, n, first = pair.sizes, len(captures), pair.stage(0)
    start, own = max(0, n - sizes.window), Stage(pair, stage, round_trips)
    rows = []
    for position in range(start, n):
        projected = first["main_proj.weight"] @ captures[position]
        main = rms_norm(projected, first["main_norm.weight"], sizes.rms_eps)
        rows.append(own.key(main, position))
    return np.stack(rows)


class Stage:
    """One draft stage: a block of ratio 0 that sees context rows and its whole block."""

    def __init__(self, pair: ReferencePair, index: int, round_trips: bool) -> None:
        self.sizes = pair.sizes
        self.w: Weights = pair.stage(index)
        self.round_trips = round_trips
        self.angles = plain_frequencies(pair.sizes)

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.w[f"{name}.weight"], self.sizes.rms_eps)

    def key(self, x: Array, position: int) -> Array:
        row = self.norm(self.w["attn_kv.weight"] @ x, "attn_kv_a_norm")
        row = rotate(row, position, self.angles)
        return fp8_round_trip(row, self.sizes.rope_dim) if self.round_trips else row

    def run(self, streams: Array, context: Array, start: int) -> float:
        """Replace the streams by the stage's; returns the least router margin."""
        sizes, n = self.sizes, start + len(context)
        branch = [hyper_pre(x, self.w, "hc_attn", sizes) for x in streams]
        normed = [self.norm(x, "attn_norm") for x, _, _ in branch]
        block = [self.key(x, n + i) for i, x in enumerate(normed)]
        keys, margin = np.stack([*context, *block]), math.inf
        for i, (_, post, mixing) in enumerate(branch):
            low = self.norm(self.w["attn_q_a.weight"] @ normed[i], "attn_q_a_norm")
            q = (self.w["attn_q_b.weight"] @ low).reshape(sizes.heads, -1)
            q = rotate(rms_norm(q, None, sizes.rms_eps), n + i, self.angles)
            o = rotate(
                attend(q, keys, self.w["attn_sinks.weight"]), n + i, self.angles, back=True
            )
            streams[i] = hyper_post(project_out(o, self.w, sizes), streams[i], post, mixing)
        for i in range(len(streams)):
            x, post, mixing = hyper_pre(streams[i], self.w, "hc_ffn", sizes)
            y, row_margin = mixture(self.norm(x, "ffn_norm"), self.w, sizes, None)
            streams[i] = hyper_post(y, streams[i], post, mixing)
            margin = min(margin, row_margin)
        return margin
