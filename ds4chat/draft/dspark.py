"""The DSpark draft module: context rows in, a proposal with confidences out.

Formulas: `spec/architecture.md` section 11. Alignment is the reference one: with n committed
tokens the block's row i stands at position n + i, and the context is positions n-128 .. n-1.
The drafter always runs its whole block (attention inside is not causal) and takes its argmax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.config import DraftConfig
from ds4chat.draft.layout import DraftLayout
from ds4chat.model.kv import fill_ring, host_part, poison_ring, ring_part, ring_size
from ds4chat.model.layers.attention import Sight, attend_heads, finish, first_rows, make_kv
from ds4chat.model.layers.feed_forward import feed_forward
from ds4chat.model.plan import Plan
from ds4chat.model.target import embed
from ds4chat.model.weights import BlockWeights, HeadWeights
from ds4chat.ops import markov_kernels as markov
from ds4chat.ops.edge_kernels import embed_rows
from ds4chat.ops.hyper_kernels import Flow, begin, collapse, read, unwritten, write
from ds4chat.ops.keep_kernels import KeyRows, keep
from ds4chat.ops.linear import Fused, Linear
from ds4chat.ops.norms import norm_rows
from ds4chat.ops.packed import on_device
from ds4chat.ops.replay import Replay, emptied
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
    """Lazy results of a draft of B rows.

    `told` `(3, B)` float32: tokens, confidence logits, and the largest logit of each row, NaN
    if any of them is. `base_logits` `(B, V)` are before the Markov correction, `rows` `(1, V)`
    each after it.
    """

    told: mx.array
    base_logits: mx.array
    rows: list[mx.array]

    @property
    def tokens(self) -> mx.array:
        """`(B,)` int32."""
        return self.told[0].astype(mx.int32)

    @property
    def confidence_logits(self) -> mx.array:
        """`(B,)`."""
        return self.told[1]

    @property
    def logits(self) -> mx.array:
        """`(B, V)` after the Markov correction."""
        return mx.concatenate(self.rows, axis=0)


class DraftLog:
    """The context rows of every stage: rings by absolute position; n is the target's.

    `n_moves` is that of `KVLog`.
    """

    def __init__(self, config: DraftConfig, dtype: mx.Dtype) -> None:
        shape = (ring_size(config.block.window), config.block.head_dim)
        self.rings = [mx.zeros(shape, dtype=dtype) for _ in range(config.n_stages)]
        self.n_moves = 0
        self._window = config.block.window

    @property
    def owner(self) -> Self:
        """See `engine.recording.State`."""
        return self

    def arrays(self) -> list[mx.array]:
        """The rings."""
        return list(self.rings)

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Hold these rings instead."""
        self.rings = list(arrays)

    def logical_state(self, n: int) -> dict[str, NDArray[Any]]:
        """The last 128 rows of each stage in position order."""
        self.n_moves += 1
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
        self._layout = DraftLayout(config, self._rope)

    def new_log(self) -> DraftLog:
        """Empty rings."""
        return DraftLog(self.config, self.dtype)

    def append(self, log: DraftLog, capture: mx.array, plan: Plan) -> None:
        """Write the context rows of a target pass; `capture` `(L, layers * D)`.

        Like the target's rows they count only up to n. Row i has the same bits for any L <= 8.
        A recorded pass writes them where the rings lie (`engine/recorded.py`).
        """
        log.n_moves += 1
        keep = plan.window_keep
        table = plan.plain
        if plan.is_prefill or plan.plain_spec != self._rope.spec:
            at = np.arange(plan.n + plan.length - keep, plan.n + plan.length)
            table = on_device(self._rope.host_table(at), self._replay)
        fixed = [capture, table.cos, table.sin, plan.window_slots]
        n = len(log.rings)

        def run(arrays: list[mx.array]) -> list[mx.array]:
            rings, (rows, cos, sin, slots) = arrays[:n], arrays[n:]
            last = rows if keep == rows.shape[0] else rows[-keep:]
            self._append(rings, last, RopeTable(cos=cos, sin=sin), slots)
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
        main = norm_rows(w.main_proj(rows), w.main_norm, eps, self.dtype)
        for s, kv in enumerate(w.context_kv.columns(main)):
            norm, dtype = w.stages[s].attn.kv_norm, rings[s].dtype
            is_rounded = self._fp8_split is not None
            keys = KeyRows(kv=kv, norm=norm, table=table, eps=eps, is_rounded=is_rounded)
            made = keep(rings[s], slots, keys)
            if made is None:
                rings[s][slots] = make_kv(kv, norm, eps, table, self._fp8_split, dtype)
            else:
                rings[s] = made.window

    def constants(self) -> list[mx.array]:
        """All arrays that drafts and context rows are made with and that stay."""
        found: list[mx.array] = []
        emptied((self.weights, self._output, self._embedding), found)
        block = self.config.block
        return [*found, *unwritten(self.config.block_size, block.n_streams, block.dim).arrays()]

    def layout(self, anchor: int, n: int) -> DraftLayout:
        """The kept buffer, filled for a draft behind `anchor`, the token at position n."""
        self._layout.fill(anchor, n)
        return self._layout

    def propose(self, log: DraftLog, anchor: int, n: int) -> LazyProposal:
        """Draft a block behind `anchor`, the token at position n, not yet evaluated."""
        *parts, _ = self.layout(anchor, n).on_device(self._replay, is_moved=False)
        arrays = [*parts, *log.rings]
        told, base, *rows = self._replay(("propose",), lambda: self._propose, [], arrays)
        return LazyProposal(told=told, base_logits=base, rows=rows)

    def kept_proposal(self, log: DraftLog, layout: DraftLayout) -> tuple[mx.array, mx.array]:
        """What a proposal tells, its parts being views of one buffer, and that buffer."""
        *parts, words = layout.split(is_moved=True)([mx.array(layout.words)])
        return self._propose([*parts, *log.rings])[0], words

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
        return self._read_heads(flow, ids)

    def _read_heads(self, flow: Flow, ids: mx.array) -> list[mx.array]:
        """What is told, base logits `(B, V)`, and each row's logits: a Markov chain."""
        w, eps = self.weights, self.config.block.rms_eps
        hidden = collapse(flow, w.head.hc, None)
        normed = norm_rows(hidden, w.head.norm, eps, mx.float32)
        base = self._output(normed).astype(mx.float32)
        return self._chain(hidden, base, ids) or self._stock_chain(hidden, base, ids[0])

    def _chain(self, hidden: mx.array, base: mx.array, ids: mx.array) -> list[mx.array] | None:
        """The chain by kernels alone, or None."""
        w, rows = self.weights, list[mx.array]()
        first = embed_rows(w.markov_in, ids[:1], 1)
        memory = None if first is None else first.reshape(1, -1)
        memories, tops = list[mx.array](), list[mx.array]()
        for i in range(self.config.block_size):
            if i:
                memory = markov.remember(tops[-1], w.markov_in)
            if memory is None:
                return None
            picked = markov.pick(base[i : i + 1], w.markov_out(memory))
            if picked is None:
                return None
            memories.append(memory)
            tops.append(picked.tops)
            rows.append(picked.logits)
        told = markov.tell(tops, memories, hidden, w.confidence, w.confidence_bias)
        return None if told is None else [told, base, *rows]

    def _stock_chain(
        self, hidden: mx.array, base: mx.array, anchor: mx.array
    ) -> list[mx.array]:
        """The same by stock operations."""
        w = self.weights
        previous, tokens, rows, confidences = anchor, [], [], []
        for i in range(self.config.block_size):
            memory = w.markov_in[previous][None].astype(mx.float32)
            row = base[i : i + 1] + w.markov_out(memory).astype(mx.float32)
            feature = mx.concatenate([hidden[i : i + 1], memory], axis=1)
            confidences.append(feature @ w.confidence + w.confidence_bias)
            previous = mx.argmax(row[0]).astype(mx.int32)
            tokens.append(previous)
            rows.append(row)
        told = [
            mx.stack(tokens).astype(mx.float32),
            mx.concatenate(confidences),
            mx.max(mx.concatenate(rows, axis=0), axis=-1),  # argmax passes over NaN
        ]
        return [mx.stack(told), base, *rows]
