"""The attention branch of a V4 block: window, compressed rows, indexer, grouped output.

Formulas: `spec/architecture.md` sections 4 to 6 and 10.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ds4chat.model.config import TargetConfig
from ds4chat.model.kv import LayerCache
from ds4chat.model.plan import Plan, RatioPlan, RowJob
from ds4chat.model.weights import AttentionWeights, CompressorWeights
from ds4chat.ops import attention_kernels as kernels
from ds4chat.ops import cache_kernels, index_kernels
from ds4chat.ops.attention import attend, gather_keys, project_groups
from ds4chat.ops.attention_kernels import FirstRows
from ds4chat.ops.bands import attend_bands, bands
from ds4chat.ops.complete_kernels import Place, Pooled, complete
from ds4chat.ops.compressor import entries_of, pool
from ds4chat.ops.dispatch import current
from ds4chat.ops.indexer import choose_rows, score_rows
from ds4chat.ops.keep_kernels import Kept, KeyRows, Queries, RawPlace, RawRows, keep
from ds4chat.ops.linear import Columns, all_columns
from ds4chat.ops.norms import rms_norm
from ds4chat.ops.prompt_attention import PromptKeys, attend_prompt
from ds4chat.ops.quantsim import index_round_trip, kv_round_trip
from ds4chat.ops.rope import RopeTable, rotate


def first_rows(
    q_a: Columns, kv: Columns, w: AttentionWeights, eps: float, table: RopeTable,
    fp8_split: int | None, dtype: mx.Dtype,
) -> FirstRows:  # fmt: skip
    """`(L, q_lora)` to normed latents and `(L, d)` to key/value rows in `dtype`.

    `fp8_split` is `rope_dim` with the FP8 round trip, None without it.
    """
    made = kernels.first_rows(
        q_a, w.q_norm, kv, w.kv_norm, table,
        eps=eps, is_rounded=fp8_split is not None, row_dtype=dtype,
    )  # fmt: skip
    if made is not None:
        return made
    wide = rms_norm(q_a.alone(), w.q_norm, eps)
    row = make_kv(kv, w.kv_norm, eps, table, fp8_split, dtype)
    return FirstRows(latent=wide.astype(q_a.whole.dtype), wide=wide, row=row)


def make_kv(
    kv: Columns, norm: mx.array, eps: float, table: RopeTable, fp8_split: int | None,
    dtype: mx.Dtype,
) -> mx.array:  # fmt: skip
    """`(L, d)` to the normed, rotated and rounded key/value rows, in `dtype`."""
    made = kernels.kv_rows(
        kv, norm, table, eps=eps, is_rounded=fp8_split is not None, dtype=dtype
    )
    if made is not None:
        return made
    row = rotate(rms_norm(kv.alone(), norm, eps), table)
    return (row if fp8_split is None else kv_round_trip(row, fp8_split)).astype(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What rows attend: `parts` are window rows, then compressed ones.

    `mask` `(L, S)` and `is_live` `(S,)` go over the sink and all of them. `is_fixed`: slots as
    in a decode pass, at most two parts. `dtype` is the type of activations. `reach`, of a
    prompt's pass: its first position and how many positions make a compressed row; `has_chosen`
    says that its mask hides some of these rows.
    """

    parts: list[mx.array]
    mask: mx.array
    is_live: mx.array
    is_fixed: bool
    dtype: mx.Dtype
    reach: tuple[int, int] = (0, 0)
    has_chosen: bool = False

    def of_prompt(self) -> PromptKeys:
        """The same of a prompt's pass."""
        rows = self.parts[2] if len(self.parts) > 2 else None
        mask = None if rows is None else self.mask[:, -rows.shape[0] :]
        return PromptKeys(
            before=self.parts[0],
            own=self.parts[1],
            rows=rows,
            mask=mask if self.has_chosen else None,
            n=self.reach[0],
            ratio=self.reach[1],
        )


def attend_heads(
    q: mx.array, sight: Sight, w: AttentionWeights, eps: float, table: RopeTable
) -> mx.array:
    """Projected queries `(L, H * d)` to values `(L, H, d)`, norm and rotations included."""
    if sight.is_fixed:
        keys = sight.parts[1] if len(sight.parts) > 1 else None
        made = kernels.decode(
            q, sight.parts[0], keys, sight.mask, w.sink, table, eps=eps, dtype=sight.dtype
        )
        if made is not None:
            return made
    if not sight.is_fixed and not current().is_reference:
        return _attend_prompt(q, sight, w, eps, table)
    heads = q.reshape(q.shape[0], w.sink.shape[0], -1)
    heads = rotate(rms_norm(heads, None, eps), table)
    out = attend(heads, gather_keys(sight.parts, sight.is_live), sight.mask, w.sink)
    return rotate(out, table, inverse=True).astype(sight.dtype)


def _attend_prompt(
    q: mx.array, sight: Sight, w: AttentionWeights, eps: float, table: RopeTable
) -> mx.array:
    """`attend_heads` for a prompt's rows on a GPU."""
    made = attend_prompt(q, sight.of_prompt(), w.sink, table, eps)
    if made is None:
        n_heads = w.sink.shape[0]
        cut = bands(q.shape[0], [p.shape[0] for p in sight.parts], n_heads, sight.reach)
        keys = gather_keys(sight.parts, sight.is_live)
        made = attend_bands(q, keys, sight.mask, w.sink, table, eps, cut)
    return made.astype(sight.dtype)


def finish(out: mx.array, w: AttentionWeights, n_groups: int) -> mx.array:
    """Project `(L, H, d)` to `(L, D)`."""
    return w.out_b(project_groups(out, w.out_a, n_groups).astype(out.dtype))


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
        inputs = w.inputs.columns(x)
        kept = None if plan.is_prefill else self._keep(inputs, w, cache, plan)
        if kept is not None:
            latent, wide, parts = kept.latent, kept.wide, [cache.window]
        else:
            first = first_rows(
                inputs[0], inputs[1], w, eps, table, self._fp8_split, cache.window.dtype
            )
            latent, wide = first.latent, first.wide
            parts = self._append_window(first.row, cache, plan)
        q = w.q_b(latent)
        mask = ratio_plan.mask
        if cache.ratio:
            self._compress(inputs, w, cache, ratio_plan, kept is not None)
            assert cache.rows is not None
            parts.append(cache.rows[: ratio_plan.n_slots])
            if ratio_plan.must_choose:
                mask = self._choose(wide, inputs[6], w, cache, ratio_plan, table)
        sight = Sight(
            parts=parts,
            mask=mask,
            is_live=ratio_plan.is_live,
            is_fixed=not plan.is_prefill,
            dtype=x.dtype,
            reach=(plan.n, cache.ratio),
            has_chosen=ratio_plan.must_choose,
        )
        return finish(attend_heads(q, sight, w, eps, table), w, b.n_groups)

    def _keep(
        self, inputs: list[Columns], w: AttentionWeights, cache: LayerCache, plan: Plan
    ) -> Kept | None:
        """Latents, and a decode pass's rows in all rings, in one launch if that is built."""
        keys = KeyRows(
            kv=inputs[1],
            norm=w.kv_norm,
            table=plan.compressed if cache.ratio else plan.plain,
            eps=self._block.rms_eps,
            is_rounded=self._kv_fp8,
        )
        place = _raw_place(plan.by_ratio[cache.ratio])
        raw = _raw_rings(inputs, w, cache)
        queries = Queries(q_a=inputs[0], norm=w.q_norm)
        made = keep(cache.window, plan.window_slots, keys, queries, raw, place)
        if made is None:
            return None
        cache.window = made.window
        if made.raw:
            cache.raw = made.raw[0]
        if len(made.raw) > 1:
            cache.index_raw = made.raw[1]
        return made

    def _append_window(self, rows: mx.array, cache: LayerCache, plan: Plan) -> list[mx.array]:
        """Write the pass's rows and return the window rows to attend, in slot order."""
        if plan.window_before is not None:
            before = cache.window[plan.window_before]
            cache.window[plan.window_slots] = rows[plan.length - plan.window_keep :]
            return [before, rows]
        cache.window[plan.window_slots] = rows
        return [cache.window]

    def _compress(
        self,
        inputs: list[Columns],
        w: AttentionWeights,
        cache: LayerCache,
        plan: RatioPlan,
        is_kept: bool,
    ) -> None:
        """Write the compressed rows of a pass and, unless `is_kept`, its raw rows."""
        assert w.compressor is not None
        assert cache.raw is not None
        assert cache.rows is not None
        if is_kept and self._complete(w, cache, plan):
            return
        new = None if is_kept else _raw_rows(inputs[2], inputs[3], w.compressor, plan)
        for where, made, table in _new_rows(new, cache.ratio, cache.raw, plan):
            cache.rows[where] = make_kv(
                all_columns(made), w.compressor.norm, self._block.rms_eps, table,
                self._fp8_split, cache.rows.dtype,
            )  # fmt: skip
        if w.index_compressor is None:
            return
        assert cache.index_raw is not None
        assert cache.index_rows is not None
        new = None if is_kept else _raw_rows(inputs[4], inputs[5], w.index_compressor, plan)
        for where, made, table in _new_rows(new, cache.ratio, cache.index_raw, plan):
            made_row = self._index_rows(made, w.index_compressor.norm, table)
            cache.index_rows[where] = made_row

    def _complete(self, w: AttentionWeights, cache: LayerCache, plan: RatioPlan) -> bool:
        """Make a decode pass's compressed rows of its raw ones, a launch each, if built."""
        for job in plan.jobs:
            assert w.compressor is not None
            assert cache.rows is not None
            assert cache.raw is not None
            keys = Pooled(rows=cache.rows, raw=cache.raw, norm=w.compressor.norm)
            index = None
            if w.index_compressor is not None:
                assert cache.index_rows is not None
                assert cache.index_raw is not None
                norm = w.index_compressor.norm
                index = Pooled(rows=cache.index_rows, raw=cache.index_raw, norm=norm)
            place = Place(
                at=job.row,
                slots=job.raw_slots,
                table=job.table,
                is_overlapping=cache.ratio == 4,
                is_first=job.is_first,
            )
            eps = self._block.rms_eps
            made = complete(keys, index, place, eps=eps, is_rounded=self._kv_fp8)
            if made is None:
                return False
            cache.rows = made[0]
            if index is not None:
                cache.index_rows = made[1]
        return True

    def _index_rows(self, x: mx.array, norm: mx.array | None, table: RopeTable) -> mx.array:
        """The indexer's rows `(N, di)`, or its queries `(L * Hi, di)`, turned and rounded."""
        eps = self._block.rms_eps
        made = index_kernels.index_rows(x, norm, table, eps=eps, is_rounded=self._kv_fp8)
        if made is not None:
            return made
        length = table.cos.shape[0]
        rows = x.astype(mx.float32) if norm is None else rms_norm(x, norm, eps)
        if x.shape[0] != length:
            rows = rows.reshape(length, -1, x.shape[1])
        rows = rotate(rows, table)
        return (index_round_trip(rows) if self._kv_fp8 else rows).reshape(x.shape)

    def _choose(
        self,
        latent: mx.array,
        head_weight: Columns,
        w: AttentionWeights,
        cache: LayerCache,
        plan: RatioPlan,
        table: RopeTable,
    ) -> mx.array:
        """The mask with only the indexer's choice among the compressed rows."""
        c = self._config
        assert w.index_q is not None
        assert cache.index_rows is not None
        q = w.index_q(latent.astype(head_weight.whole.dtype))
        q = self._index_rows(q.reshape(-1, c.index_dim), None, table)
        q = q.reshape(latent.shape[0], c.index_heads, c.index_dim)
        rows = cache.index_rows[: plan.n_slots]
        scores = index_kernels.index_scores(q, head_weight, rows, plan.mask)
        if scores is None:
            scale = (c.index_dim * c.index_heads) ** -0.5
            scores = score_rows(q, head_weight.alone().astype(mx.float32) * scale, rows)
        made = cache_kernels.choose(scores, plan.mask, c.index_topk)
        if made is not None:
            return made
        split = plan.mask.shape[1] - plan.n_slots
        chosen = choose_rows(scores, plan.mask[:, split:], c.index_topk)
        return mx.concatenate([plan.mask[:, :split], chosen], axis=1)


def _raw_rows(
    values: Columns, gates: Columns, w: CompressorWeights, plan: RatioPlan
) -> mx.array:
    """`(L, 2, width)` float32: values, and gates with their position bias."""
    assert plan.phase is not None
    biased = gates.alone().astype(mx.float32) + w.bias[plan.phase]
    return mx.stack([values.alone().astype(mx.float32), biased], axis=1)


def _raw_rings(
    inputs: list[Columns], w: AttentionWeights, cache: LayerCache
) -> tuple[RawRows, ...]:
    """The rings of a layer's compressors, with a pass's values and gates."""
    pairs = ((cache.raw, w.compressor), (cache.index_raw, w.index_compressor))
    return tuple(
        RawRows(
            ring=ring, values=inputs[2 + 2 * i], gates=inputs[3 + 2 * i], bias=compressor.bias
        )
        for i, (ring, compressor) in enumerate(pairs)
        if ring is not None and compressor is not None
    )


def _raw_place(plan: RatioPlan) -> RawPlace | None:
    if plan.phase is None or plan.raw_slots is None:
        return None
    return RawPlace(phase=plan.phase, slots=plan.raw_slots)


def _new_rows(
    new: mx.array | None, ratio: int, raw: mx.array, plan: RatioPlan
) -> list[tuple[mx.array | slice, mx.array, RopeTable]]:
    """Write `new` (None: it is there) into the ring `raw`; pooled rows with where they go.

    Each is (which rows, `(N, c)`, table). A decode pass pools its rows one by one, always with
    the same shapes.
    """
    before = None if plan.raw_before is None else raw[plan.raw_before]
    if new is not None:
        raw[plan.raw_slots] = new[new.shape[0] - plan.raw_keep :]
    if before is None or new is None:
        return [(job.row, _pool_one(raw, ratio, job), job.table) for job in plan.jobs]
    if plan.n_new == 0 or plan.new_table is None:
        return []
    tokens = mx.concatenate([before, new], axis=0)
    where = slice(plan.first_new, plan.first_new + plan.n_new)
    return [(where, _pool_many(tokens, ratio, plan), plan.new_table)]


def _pool_one(raw: mx.array, ratio: int, job: RowJob) -> mx.array:
    """Pool the row of one job: `(1, c)`."""
    made = cache_kernels.pool(
        raw, job.raw_slots, is_overlapping=ratio == 4, is_first=job.is_first
    )
    if made is not None:
        return made
    return pool(*entries_of(raw[job.raw_slots], ratio == 4, job.is_first))


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
