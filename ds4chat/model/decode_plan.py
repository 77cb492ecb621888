"""Plans of decode passes: all that depends on positions, written into one buffer.

The token is not needed, so the plan of the next step can be made while the device works on this
one. A layout says where the parts stand; passes of one graph share it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.model.config import TargetConfig
from ds4chat.model.kv import MAX_ROWS, kept_rows, padded, raw_span, ring_size
from ds4chat.model.plan import Plan, RatioPlan, RowJob, Source, ring_positions
from ds4chat.ops.dispatch import current
from ds4chat.ops.packed import KeptBuffer
from ds4chat.ops.replay import Arrays, Replay
from ds4chat.ops.rope import Rope, RopeTable

MAX_LAYOUTS = 64
"""Layouts kept: a few for each number of rows, and other ones every 256 tokens."""
IDS = 0
"""The first part."""
NO_ROW = -1
"""The row of a job that is none, for `complete_kernels.complete`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioForm:
    """What a pass's graph depends on in layers of one ratio; see `RatioPlan`."""

    ratio: int
    n_slots: int = 0
    must_choose: bool = False
    n_jobs: int = 0
    starts: bool = False  # the first job completes row 0


Form = tuple[int, tuple[RatioForm, ...]]
"""The number of rows, and the forms of all ratios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Numbers of the parts of a `RowJob`."""

    row: int
    raw_slots: int
    cos: int
    sin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ratio:
    """Numbers of the parts of a `RatioPlan`."""

    form: RatioForm
    mask: int
    is_live: int
    phase: int = -1
    raw_slots: int = -1
    jobs: tuple[_Job, ...] = ()


class Layout(KeptBuffer):
    """Where the parts of passes of one form stand in the buffer; compared by identity.

    `n` is the position that the buffer is filled for, but for the ids.
    """

    def __init__(self, form: Form, window: int, half: int) -> None:
        super().__init__()
        self.length, forms = form
        self.n: int | None = None
        length, ring = self.length, ring_size(window)
        self.ids = self.add((length,), "i")
        self.plain = self._table(length, half)
        self.compressed = self._table(length, half)
        self.window_slots = self.add((length,), "i")
        self.ratios = [self._ratio(f, 1 + ring + f.n_slots, half) for f in forms]
        self.close()
        for ratio in self.ratios:
            self.views[ratio.is_live][0] = 1  # the sink; its mask is 0 as it is

    def _table(self, length: int, half: int) -> tuple[int, int]:
        return self.add((length, half), "f"), self.add((length, half), "f")

    def _ratio(self, form: RatioForm, n_columns: int, half: int) -> _Ratio:
        mask = self.add((self.length, n_columns), "f")
        is_live = self.add((n_columns,), "?")
        if not form.ratio:
            return _Ratio(form=form, mask=mask, is_live=is_live)
        return _Ratio(
            form=form,
            mask=mask,
            is_live=is_live,
            phase=self.add((self.length,), "i"),
            raw_slots=self.add((self.length,), "i"),
            jobs=tuple(
                self._job(form.ratio, form.starts and j == 0, half) for j in range(form.n_jobs)
            ),
        )

    def _job(self, ratio: int, is_first: bool, half: int) -> _Job:
        row = self.add((1,), "i")
        raw_slots = self.add((ratio if is_first or ratio != 4 else 2 * ratio,), "i")
        cos, sin = self._table(1, half)
        return _Job(row=row, raw_slots=raw_slots, cos=cos, sin=sin)

    def ratio_plans(self, parts: Sequence[mx.array]) -> dict[int, RatioPlan]:
        """The plans of all ratios, of arrays in the order of the parts."""
        return {ratio.form.ratio: self._ratio_plan(ratio, parts) for ratio in self.ratios}

    def _ratio_plan(self, at: _Ratio, parts: Sequence[mx.array]) -> RatioPlan:
        form = at.form
        if not form.ratio:
            return RatioPlan(mask=parts[at.mask], is_live=parts[at.is_live])
        return RatioPlan(
            mask=parts[at.mask],
            is_live=parts[at.is_live],
            n_slots=form.n_slots,
            must_choose=form.must_choose,
            phase=parts[at.phase],
            raw_slots=parts[at.raw_slots],
            raw_keep=self.length,
            jobs=tuple(
                RowJob(
                    row=parts[job.row],
                    raw_slots=parts[job.raw_slots],
                    is_first=form.starts and j == 0,
                    table=RopeTable(cos=parts[job.cos], sin=parts[job.sin]),
                )
                for j, job in enumerate(at.jobs)
            ),
        )


@dataclass(slots=True)
class _Layouts:
    """Layouts by form; the least recently used are dropped."""

    window: int
    half: int
    _known: OrderedDict[Form, Layout] = field(default_factory=OrderedDict)

    def of(self, form: Form) -> Layout:
        layout = self._known.get(form)
        if layout is None:
            layout = self._known[form] = Layout(form, self.window, self.half)
            if len(self._known) > MAX_LAYOUTS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(form)
        return layout


class DecodePlanner:
    """Makes plans of 1..8 rows for one model geometry."""

    def __init__(self, config: TargetConfig, plain: Rope, compressed: Rope) -> None:
        self._window = config.block.window
        self._topk = config.index_topk
        self._ratios = sorted(set(config.compress_ratios))
        self._plain, self._compressed = plain, compressed
        self._layouts = _Layouts(self._window, config.block.rope_dim // 2)
        self._replay = Replay()

    def plan(self, ids: Sequence[int], n: int) -> Plan:
        """Plan a pass over `ids` at positions n, n + 1, ..

        Raises:
            ValueError: more than eight rows.
        """
        if len(ids) > MAX_ROWS:
            raise ValueError(f"a row-exact pass has at most {MAX_ROWS} rows, not {len(ids)}")
        layout = self._filled(n, len(ids))
        layout.views[IDS][:] = ids
        return self._made(layout, layout.on_device(self._replay, is_moved=False)[:-1], n)

    def ahead(self, n: int) -> Plan:
        """Plan a pass of one row whose token is not known yet; `with_ids` tells it.

        Where graphs are replayed, the device begins to fetch the plan.
        """
        layout = self._filled(n, 1)
        *parts, words = layout.on_device(self._replay, is_moved=True)
        if current().is_replayed:
            mx.async_eval(words)  # type: ignore[no-untyped-call]
        return self._made(layout, parts, n)

    def kept(self, n: int, length: int) -> Layout | None:
        """The layout, filled but for the ids, of a pass whose graph is kept over many passes.

        Such passes have room for more compressed rows than there are, and for as many new ones
        as rows of that number can complete: a row -1 is none. None for the few passes that
        complete a ratio's first row, whose graph is another.
        """
        forms = tuple(self._kept_form(r, n, length) for r in self._ratios)
        if any(form.starts for form in forms):
            return None
        return self._fill(self._layouts.of((length, forms)), n, length)

    def kept_plan(self, layout: Layout, n: int) -> tuple[Plan, mx.array]:
        """A plan whose parts are views of one buffer on the device, and that buffer."""
        *parts, words = layout.split(is_moved=True)([mx.array(layout.words)])
        return self._made(layout, parts, n), words

    def _kept_form(self, ratio: int, n: int, length: int) -> RatioForm:
        form = self._form(ratio, n, length)
        if not ratio:
            return form
        n_slots = kept_rows(ratio, (n + length) // ratio)
        return replace(form, n_slots=n_slots, n_jobs=-(-length // ratio))

    def with_ids(self, plan: Plan, ids: Sequence[int]) -> Plan:
        """A plan made ahead, for these tokens."""
        assert plan.source is not None
        told = mx.array(np.array(ids, np.int32))
        parts = [told, *plan.source.parts[1:]]
        source = Source(layout=plan.source.layout, parts=parts)
        return replace(plan, ids=told, source=source)

    def _made(self, layout: Layout, parts: Arrays, n: int) -> Plan:
        return Plan(
            n=n,
            length=layout.length,
            ids=parts[IDS],
            plain=RopeTable(cos=parts[layout.plain[0]], sin=parts[layout.plain[1]]),
            plain_spec=self._plain.spec,
            compressed=RopeTable(
                cos=parts[layout.compressed[0]], sin=parts[layout.compressed[1]]
            ),
            window_slots=parts[layout.window_slots],
            window_keep=layout.length,
            window_before=None,
            by_ratio=layout.ratio_plans(parts),
            source=Source(layout=layout, parts=parts),
        )

    def _filled(self, n: int, length: int) -> Layout:
        """The layout of a pass, its buffer filled but for the ids."""
        forms = tuple(self._form(r, n, length) for r in self._ratios)
        return self._fill(self._layouts.of((length, forms)), n, length)

    def _fill(self, layout: Layout, n: int, length: int) -> Layout:
        """Fill the buffer but for the ids, unless it is."""
        if layout.n == n:
            return layout
        layout.n = None  # until all of it is there: what is interrupted is no plan
        views, positions = layout.views, np.arange(n, n + length)
        for rope, at in ((self._plain, layout.plain), (self._compressed, layout.compressed)):
            _put_table(views, at, rope.rows(n, length))
        ring = ring_size(self._window)
        np.remainder(positions, ring, out=views[layout.window_slots], casting="unsafe")
        newest = ring_positions(n + length, ring)
        rows = positions[:, None]
        is_seen = (newest > rows - self._window) & (newest <= rows) & (newest >= 0)
        window = np.where(is_seen, np.float32(0), np.float32(-np.inf))
        any_seen = is_seen[0] if length == 1 else is_seen.any(axis=0)
        for ratio in layout.ratios:
            views[ratio.mask][:, 1 : 1 + ring] = window
            views[ratio.is_live][1 : 1 + ring] = any_seen
            if ratio.form.ratio:
                self._fill_ratio(views, ratio, positions, 1 + ring)
        layout.n = n
        return layout

    def _form(self, ratio: int, n: int, length: int) -> RatioForm:
        if not ratio:
            return RatioForm(ratio=0)
        first, last = n // ratio, (n + length) // ratio
        return RatioForm(
            ratio=ratio,
            n_slots=padded(last),
            must_choose=ratio == 4 and last > self._topk,
            n_jobs=last - first,
            starts=first == 0 < last,
        )

    def _fill_ratio(
        self, views: list[NDArray[Any]], at: _Ratio, positions: NDArray[np.int64], split: int
    ) -> None:
        """Fill what layers of one ratio need; compressed rows are the columns from `split`."""
        ratio, n, mask = at.form.ratio, int(positions[0]), views[at.mask]
        end = split
        for i in range(len(positions)):
            end = split + (n + i + 1) // ratio
            mask[i, split:end] = 0.0
            mask[i, end:] = -np.inf
        views[at.is_live][split:end] = 1
        views[at.is_live][end:] = 0
        np.remainder(positions, ratio, out=views[at.phase], casting="unsafe")
        n_raw = ring_size(raw_span(ratio))
        np.remainder(positions, n_raw, out=views[at.raw_slots], casting="unsafe")
        last = (n + len(positions)) // ratio
        for j, job in enumerate(at.jobs):
            row = n // ratio + j
            views[job.row][0] = row if row < last else NO_ROW
            if row >= last:
                continue
            n_tokens = len(views[job.raw_slots])
            tokens = np.arange(ratio * (row + 1) - n_tokens, ratio * (row + 1))
            views[job.raw_slots][:] = tokens % n_raw
            _put_table(views, (job.cos, job.sin), self._compressed.rows(ratio * row, 1))


def _put_table(views: list[NDArray[Any]], at: tuple[int, int], table: RopeTable) -> None:
    views[at[0]][:], views[at[1]][:] = table.cos, table.sin
