"""The DSpark draft module: context rows in, a proposal with confidences out.

Formulas: `spec/architecture.md` section 11. Alignment is the reference one: with n committed
tokens the block's row i stands at position n + i, and the context is positions n-128 .. n-1.
The drafter always runs its whole block (attention inside is not causal) and takes its argmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.config import DraftConfig
from ds4chat.model.config import BlockConfig
from ds4chat.model.kv import fill_ring, host_part, poison_ring, ring_part, ring_size
from ds4chat.model.layers.attention import Sight, attend_heads, finish, first_rows, make_kv
from ds4chat.model.layers.feed_forward import feed_forward
from ds4chat.model.plan import Plan
from ds4chat.model.target import embed
from ds4chat.model.weights import BlockWeights, HeadWeights
from ds4chat.ops.hyper_kernels import Flow, begin, collapse, read, write
from ds4chat.ops.keep_kernels import KeyRows, keep
from ds4chat.ops.linear import Fused, Linear
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.packed import on_device
from ds4chat.ops.replay import Replay
from ds4chat.ops.rope import Rope, RopeSpec, RopeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWeights:
    """The support file. `context_kv` holds every stage's key/value projection of main_x."""

    main_proj: Linear
    main_norm: mx.array
    context_kv: Fused
    stages: tuple[BlockWeights, ...]
    head: HeadWeights
    markov_in: mx.array  # (V, rank)
    markov_out: Linear  # rank to V
    confidence: mx.array  # (D + rank,)
    confidence_bias: mx.array  # ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyProposal:
    """Lazy results: `tokens` `(B,)` int32, `confidence_logits` `(B,)`, and both logits."""

    tokens: mx.array
    confidence_logits: mx.array
    base_logits: mx.array  # (B, V) before the Markov correction
    logits: mx.array  # (B, V) after it


class DraftLog:
    """The context rows of every stage: rings by absolute position; n is the target's."""

    def __init__(self, config: DraftConfig, dtype: mx.Dtype) -> None:
        shape = (ring_size(config.block.window), config.block.head_dim)
        self.rings = [mx.zeros(shape, dtype=dtype) for _ in range(config.n_stages)]
        self._window = config.block.window

    def logical_state(self, n: int) -> dict[str, NDArray[Any]]:
        """The last 128 rows of each stage in position order."""
        start = max(0, n - self._window)
        return {f"draft.{s}.window": host_part(r, start, n) for s, r in enumerate(self.rings)}

    def lazy_state(self, n: int) -> dict[str, mx.array]:
        """The same, not evaluated."""
        start = max(0, n - self._window)
        return {f"draft.{s}.window": ring_part(r, start, n) for s, r in enumerate(self.rings)}

    def restore(self, n: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold the rows of `n` tokens, as `lazy_state` gave them."""
        for s, ring in enumerate(self.rings):
            rows = state[f"draft.{s}.window"]
            self.rings[s] = fill_ring(ring, n - len(rows), rows)

    def poison(self, n: int) -> None:
        """Fill every slot outside the logical state with NaN (tests of exactness)."""
        start = max(0, n - self._window)
        self.rings = [poison_ring(r, start, n) for r in self.rings]


class Drafter:
    """Proposes tokens; shares embedding and output matrix with the target."""

    def __init__(
        self,
        config: DraftConfig,
        weights: DraftWeights,
        *,
        embedding: mx.array,
        output: Linear,
        dtype: mx.Dtype,
        kv_fp8: bool,
    ) -> None:
        self.config = config
        self.weights = weights
        self.dtype = dtype
        self._embedding = embedding
        self._output = output
        self._fp8_split = config.block.rope_dim if kv_fp8 else None
        self._replay = Replay()
        self._rope = Rope(RopeSpec(dim=config.block.rope_dim, base=config.block.rope_base))

    def new_log(self) -> DraftLog:
        """Empty rings."""
        return DraftLog(self.config, self.dtype)

    def append(self, log: DraftLog, capture: mx.array, plan: Plan) -> None:
        """Write the context rows of a target pass; `capture` `(L, layers * D)`.

        Like the target's rows they count only up to n. Row i has the same bits for any L <= 8.
        """
        keep = plan.window_keep
        table = plan.plain
        if plan.is_prefill or plan.plain_spec != self._rope.spec:
            at = np.arange(plan.n + plan.length - keep, plan.n + plan.length)
            table = on_device(self._rope.host_table(at), self._replay)
        fixed = [capture, table.cos, table.sin, plan.window_slots]
        n = len(log.rings)

        def run(arrays: list[mx.array]) -> list[mx.array]:
            rings, (rows, cos, sin, slots) = arrays[:n], arrays[n:]
            self._append(rings, rows[-keep:], RopeTable(cos=cos, sin=sin), slots)
            return rings

        if plan.is_prefill:
            log.rings = run([*log.rings, *fixed])
        else:
            log.rings = self._replay(("append", plan.length), lambda: run, log.rings, fixed)

    def _append(
        self, rings: list[mx.array], capture: mx.array, table: RopeTable, slots: mx.array
    ) -> None:
        w, eps = self.weights, self.config.block.rms_eps
        rows = capture.astype(self.dtype)
        main = rms_norm(w.main_proj(rows), w.main_norm, eps).astype(self.dtype)
        for s, kv in enumerate(w.context_kv.columns(main)):
            norm, dtype = w.stages[s].attn.kv_norm, rings[s].dtype
            is_rounded = self._fp8_split is not None
            keys = KeyRows(kv=kv, norm=norm, table=table, eps=eps, is_rounded=is_rounded)
            made = keep(rings[s], slots, keys)
            if made is None:
                rings[s][slots] = make_kv(kv, norm, eps, table, self._fp8_split, dtype)
            else:
                rings[s] = made.window

    def propose(self, log: DraftLog, anchor: int, n: int) -> LazyProposal:
        """Draft a block behind `anchor`, the token at position n, not yet evaluated."""
        c = self.config
        ids = np.array([anchor] + [c.noise_id] * (c.block_size - 1), np.int32)
        table = self._rope.host_table(n + np.arange(c.block_size))
        is_live = _live_slots(n, c.block, c.block_size)
        seen = np.where(is_live, np.float32(0), np.float32(-np.inf))
        mask = np.broadcast_to(seen, (c.block_size, len(seen)))
        given: Any = (ids, table.cos, table.sin, mask, is_live)
        arrays = [*on_device(given, self._replay), *log.rings]
        tokens, confidences, base, logits = self._replay(
            ("propose",), lambda: self._propose, [], arrays
        )
        return LazyProposal(
            tokens=tokens, confidence_logits=confidences, base_logits=base, logits=logits
        )

    def _propose(self, arrays: list[mx.array]) -> list[mx.array]:
        """The ids, cosines, sines, mask, live slots and rings to what `LazyProposal` holds."""
        ids, cos, sin, mask, is_live, *rings = arrays
        block, table = self.config.block, RopeTable(cos=cos, sin=sin)
        stages = self.weights.stages
        flow = begin(embed(self._embedding, ids, block.n_streams), stages[0].hc_attn)
        readers = [*(stage.hc_attn for stage in stages[1:]), self.weights.head.hc]
        for weights, reader, ring in zip(stages, readers, rings, strict=True):
            x, mix = read(flow, weights.hc_attn, weights.attn.norm, self.dtype)
            attn, eps = weights.attn, block.rms_eps
            q_a, kv = attn.inputs.columns(x)
            first = first_rows(q_a, kv, attn, eps, table, self._fp8_split, mx.float32)
            sight = Sight(
                parts=[ring, first.row],
                mask=mask,
                is_live=is_live,
                is_fixed=True,
                dtype=x.dtype,
            )
            out = attend_heads(attn.q_b(first.latent), sight, attn, eps, table)
            out = finish(out, attn, block.n_groups)
            flow = write(flow, mix, out, weights.hc_ffn)
            x, mix = read(flow, weights.hc_ffn, weights.ffn.norm, self.dtype)
            flow = write(flow, mix, feed_forward(x, ids, weights.ffn, block), reader)
        made = self._read_heads(flow, ids[0])
        return [made.tokens, made.confidence_logits, made.base_logits, made.logits]

    def _read_heads(self, flow: Flow, anchor: mx.array) -> LazyProposal:
        """The Markov chain, left to right, and the confidence of each row."""
        w, block = self.weights, self.config.block
        hidden = collapse(flow, w.head.hc, None)
        base = self._output(rms_norm(hidden, w.head.norm, block.rms_eps)).astype(mx.float32)
        previous, tokens, logits, confidences = anchor, [], [], []
        for i in range(self.config.block_size):
            memory = w.markov_in[previous][None].astype(mx.float32)
            row = base[i : i + 1] + w.markov_out(memory).astype(mx.float32)
            feature = mx.concatenate([hidden[i : i + 1], memory], axis=1)
            confidences.append(feature @ w.confidence + w.confidence_bias)
            previous = mx.argmax(row[0]).astype(mx.int32)
            tokens.append(previous)
            logits.append(row)
        return LazyProposal(
            tokens=mx.stack(tokens),
            confidence_logits=mx.concatenate(confidences),
            base_logits=base,
            logits=mx.concatenate(logits, axis=0),
        )


def _live_slots(n: int, block: BlockConfig, block_size: int) -> NDArray[np.bool_]:
    """`(S,)` over sink, ring and block rows: context is positions n-W .. n-1."""
    ring = ring_size(block.window)
    newest = n - 1 - (n - 1 - np.arange(ring)) % ring
    in_context = (newest >= 0) & (newest >= n - block.window)
    always = np.ones(block_size, dtype=bool)
    return np.concatenate([always[:1], in_context, always])
