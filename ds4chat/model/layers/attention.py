"""The attention branch of a V4 block: window, compressed rows, indexer, grouped output.

Formulas: `spec/architecture.md` sections 4 to 6 and 10.2.
"""

from __future__ import annotations

import mlx.core as mx

from ds4chat.model.config import TargetConfig
from ds4chat.model.kv import LayerCache
from ds4chat.model.plan import Plan, RatioPlan
from ds4chat.model.weights import AttentionWeights, CompressorWeights
from ds4chat.ops.attention import attend, gather_keys, project_groups
from ds4chat.ops.compressor import entries_of, pool
from ds4chat.ops.indexer import choose_rows, score_rows
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.quantsim import index_round_trip, kv_round_trip
from ds4chat.ops.rope import RopeTable, rotate


def make_queries(
    q_a: mx.array, w: AttentionWeights, n_heads: int, eps: float, table: RopeTable
) -> tuple[mx.array, mx.array]:
    """`(L, q_lora)` to rotated queries `(L, H, d)` float32 and the normed latent."""
    latent = rms_norm(q_a, w.q_norm, eps)
    q = w.q_b(latent.astype(q_a.dtype)).reshape(q_a.shape[0], n_heads, -1)
    return rotate(rms_norm(q, None, eps), table), latent


def make_kv(
    kv: mx.array, norm: mx.array, eps: float, table: RopeTable, fp8_split: int | None
) -> mx.array:
    """`(L, d)` to the normed, rotated and rounded key/value row, float32.

    `fp8_split` is `rope_dim` with the FP8 round trip, None without it.
    """
    row = rotate(rms_norm(kv, norm, eps), table)
    return row if fp8_split is None else kv_round_trip(row, fp8_split)


def finish(
    out: mx.array, w: AttentionWeights, n_groups: int, table: RopeTable, dtype: mx.Dtype
) -> mx.array:
    """Undo the rotation that values carry and project `(L, H, d)` to `(L, D)`.

    `dtype` is the type of activations.
    """
    out = rotate(out, table, inverse=True).astype(dtype)
    return w.out_b(project_groups(out, w.out_a, n_groups).astype(dtype))


class Attention:
    """The attention branches of all target layers, over one geometry."""

    def __init__(self, config: TargetConfig, *, kv_fp8: bool) -> None:
        self._config = config
        self._block = config.block
        self._kv_fp8 = kv_fp8
        self._fp8_split = config.block.rope_dim if kv_fp8 else None

    def __call__(
        self, x: mx.array, w: AttentionWeights, cache: LayerCache, plan: Plan
    ) -> mx.array:
        """Evaluate the branch for normed rows `(L, D)`; appends to `cache`."""
        b, eps = self._block, self._block.rms_eps
        table = plan.compressed if cache.ratio else plan.plain
        ratio_plan = plan.by_ratio[cache.ratio]
        inputs = w.inputs(x)
        q, latent = make_queries(inputs[0], w, b.n_heads, eps, table)
        kv = make_kv(inputs[1], w.kv_norm, eps, table, self._fp8_split)
        parts = self._append_window(kv, cache, plan)
        mask = ratio_plan.mask
        if cache.ratio:
            self._compress(inputs, w, cache, ratio_plan)
            assert cache.rows is not None
            parts.append(cache.rows[: ratio_plan.n_slots])
            if ratio_plan.must_choose:
                mask = self._choose(latent, inputs[6], w, cache, ratio_plan, table)
        keys = gather_keys(parts, ratio_plan.is_live)
        out = attend(q, keys, mask, w.sink)
        return finish(out, w, b.n_groups, table, x.dtype)

    def _append_window(self, kv: mx.array, cache: LayerCache, plan: Plan) -> list[mx.array]:
        """Write the pass's rows and return the window rows to attend, in slot order."""
        rows = kv.astype(cache.window.dtype)
        if plan.window_before is not None:
            before = cache.window[plan.window_before]
            cache.window[plan.window_slots] = rows[plan.length - plan.window_keep :]
            return [before, rows]
        cache.window[plan.window_slots] = rows
        return [cache.window]

    def _compress(
        self, inputs: list[mx.array], w: AttentionWeights, cache: LayerCache, plan: RatioPlan
    ) -> None:
        """Write the pass's raw rows and the compressed rows that it completes."""
        assert w.compressor is not None
        assert cache.raw is not None
        assert cache.rows is not None
        new = _raw_rows(inputs[2], inputs[3], w.compressor, plan)
        for row, made, table in _new_rows(new, cache.ratio, cache.raw, plan):
            made_row = make_kv(
                made, w.compressor.norm, self._block.rms_eps, table, self._fp8_split
            )
            cache.rows[row : row + made.shape[0]] = made_row.astype(cache.rows.dtype)
        if w.index_compressor is None:
            return
        assert cache.index_raw is not None
        assert cache.index_rows is not None
        new = _raw_rows(inputs[4], inputs[5], w.index_compressor, plan)
        for row, made, table in _new_rows(new, cache.ratio, cache.index_raw, plan):
            made_row = rotate(
                rms_norm(made, w.index_compressor.norm, self._block.rms_eps), table
            )
            if self._kv_fp8:
                made_row = index_round_trip(made_row)
            cache.index_rows[row : row + made.shape[0]] = made_row

    def _choose(
        self,
        latent: mx.array,
        head_weight: mx.array,
        w: AttentionWeights,
        cache: LayerCache,
        plan: RatioPlan,
        table: RopeTable,
    ) -> mx.array:
        """The mask with only the indexer's choice among the compressed rows."""
        c = self._config
        assert w.index_q is not None
        assert cache.index_rows is not None
        q = w.index_q(latent.astype(head_weight.dtype)).astype(mx.float32)
        q = rotate(q.reshape(latent.shape[0], c.index_heads, c.index_dim), table)
        if self._kv_fp8:
            q = index_round_trip(q)
        scale = (c.index_dim * c.index_heads) ** -0.5
        rows = cache.index_rows[: plan.n_slots]
        scores = score_rows(q, head_weight.astype(mx.float32) * scale, rows)
        split = plan.mask.shape[1] - plan.n_slots
        chosen = choose_rows(scores, plan.mask[:, split:], c.index_topk)
        return mx.concatenate([plan.mask[:, :split], chosen], axis=1)


def _raw_rows(
    values: mx.array, gates: mx.array, w: CompressorWeights, plan: RatioPlan
) -> mx.array:
    """`(L, 2, width)` float32: values, and gates with their position bias."""
    assert plan.phase is not None
    gates = gates.astype(mx.float32) + w.bias[plan.phase]
    return mx.stack([values.astype(mx.float32), gates], axis=1)


def _new_rows(
    new: mx.array, ratio: int, raw: mx.array, plan: RatioPlan
) -> list[tuple[int, mx.array, RopeTable]]:
    """Write `new` into the ring `raw`; pooled rows as (first row, `(N, c)`, table).

    A decode pass pools its rows one by one, always with the same shapes.
    """
    before = None if plan.raw_before is None else raw[plan.raw_before]
    raw[plan.raw_slots] = new[new.shape[0] - plan.raw_keep :]
    if before is None:
        return [
            (
                job.row,
                pool(*entries_of(raw[job.raw_slots], ratio == 4, job.is_first)),
                job.table,
            )
            for job in plan.jobs
        ]
    if plan.n_new == 0 or plan.new_table is None:
        return []
    tokens = mx.concatenate([before, new], axis=0)
    return [(plan.first_new, _pool_many(tokens, ratio, plan), plan.new_table)]


def _pool_many(tokens: mx.array, ratio: int, plan: RatioPlan) -> mx.array:
    """Pool `n_new` rows at once from consecutive raw rows `(T, 2, width)`: `(N, c)`."""
    n, width = plan.n_new, tokens.shape[-1]
    if ratio != 4:
        groups = tokens[: n * ratio].reshape(n, ratio, 2, width)
        return pool(groups[:, :, 0], groups[:, :, 1])
    if plan.first_new == 0:
        none = mx.stack([mx.zeros((4, width)), mx.full((4, width), -mx.inf)], axis=1)
        tokens = mx.concatenate([none, tokens], axis=0)
    half = width // 2
    older = tokens[: n * 4].reshape(n, 4, 2, width)[..., :half]
    newer = tokens[4 : n * 4 + 4].reshape(n, 4, 2, width)[..., half:]
    both = mx.concatenate([older, newer], axis=1)
    return pool(both[:, :, 0], both[:, :, 1])
