"""What one pass of L rows at position n needs to know, worked out once on the host.

Masks, slots and rotary tables depend on positions alone, so every layer of a kind shares them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.model.config import TargetConfig
from ds4chat.model.kv import open_start, padded, raw_span, ring_size
from ds4chat.ops.packed import on_device
from ds4chat.ops.replay import Replay
from ds4chat.ops.rope import Rope, RopeSpec, RopeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """One compressed row that a decode pass completes: its raw slots in token order.

    `row` `(1,)` is its index: an array, because all such passes have one graph.
    """

    row: mx.array
    raw_slots: mx.array
    is_first: bool
    table: RopeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioPlan:
    """The part of a plan that depends on a layer's ratio.

    `mask` `(L, S)` and `is_live` `(S,)` over sink, window and `n_slots` compressed rows.
    `must_choose` says that some row sees more compressed rows than the indexer keeps.
    """

    mask: mx.array
    is_live: mx.array
    n_slots: int = 0  # compressed rows attended, padded
    must_choose: bool = False
    phase: mx.array | None = None  # (L,) position mod ratio: which position bias
    raw_slots: mx.array | None = None  # where the pass's raw rows go
    raw_keep: int = 0  # how many of the last raw rows are written
    jobs: tuple[RowJob, ...] = ()  # decode pass: rows completed one by one
    n_new: int = 0  # prefill pass: rows completed together, from `first_new`
    first_new: int = 0
    raw_before: mx.array | None = None  # prefill pass: slots of the raw rows before n
    new_table: RopeTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """What plans of one form share, compared by identity, and the arrays in its order."""

    layout: Hashable
    parts: list[mx.array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One pass of L rows at positions n .. n+L-1."""

    n: int
    length: int
    ids: mx.array  # (L,) int32
    plain: RopeTable
    plain_spec: RopeSpec
    compressed: RopeTable
    window_slots: mx.array  # where the pass's last `window_keep` window rows go
    window_keep: int
    window_before: mx.array | None  # prefill pass: slots of the W-1 window rows before n
    by_ratio: dict[int, RatioPlan]
    source: Source | None = None  # of a decode pass

    def of_ratio(self, ratio: int) -> Plan:
        """What layers of one ratio need of a decode pass; alike for passes of one graph."""
        return replace(self, n=0, by_ratio={ratio: self.by_ratio[ratio]}, source=None)

    @property
    def is_prefill(self) -> bool:
        """Whether this pass is too long for the row-exact path."""
        return self.window_before is not None


class Planner:
    """Plans prompts' passes for one model geometry."""

    def __init__(self, config: TargetConfig) -> None:
        self._config = config
        block = config.block
        self.plain = Rope(RopeSpec(dim=block.rope_dim, base=block.rope_base))
        self.compressed = Rope(
            RopeSpec(
                dim=block.rope_dim,
                base=config.compress_rope_base,
                factor=config.rope_factor,
                original_ctx=config.rope_original_ctx,
                beta_fast=config.rope_beta_fast,
                beta_slow=config.rope_beta_slow,
            )
        )
        self._replay = Replay()
        self._ratios = sorted(set(config.compress_ratios))

    def plan(self, ids: Sequence[int], n: int) -> Plan:
        """Plan a pass over `ids` at positions n, n + 1, ..: any number of rows."""
        length = len(ids)
        window, ring = self._config.block.window, ring_size(self._config.block.window)
        positions = n + np.arange(length)
        keep = min(length, ring)
        plan = Plan(
            n=n,
            length=length,
            ids=host(np.asarray(ids)),
            plain=self.plain.host_table(positions),
            plain_spec=self.plain.spec,
            compressed=self.compressed.host_table(positions),
            window_slots=_slots(positions[length - keep :], ring),
            window_keep=keep,
            window_before=_slots(np.arange(n - window + 1, n), ring),
            by_ratio={r: self._ratio_plan(r, n, length) for r in self._ratios},
        )
        return on_device(plan, self._replay)

    def _ratio_plan(self, ratio: int, n: int, length: int) -> RatioPlan:
        window = self._config.block.window
        at = np.arange(n - window + 1, n + length)
        n_slots = padded((n + length) // ratio) if ratio else 0
        # many rows times all slots are work for the device
        mask, is_live = _masks(_visible(mx, n, length, at, window, ratio, n_slots))
        if ratio == 0:
            return RatioPlan(mask=mask, is_live=is_live)
        positions = n + np.arange(length)
        slots = ring_size(raw_span(ratio))
        keep = min(length, slots)
        first, last = n // ratio, (n + length) // ratio
        return RatioPlan(
            mask=mask,
            is_live=is_live,
            n_slots=n_slots,
            must_choose=ratio == 4 and last > self._config.index_topk,
            phase=host(positions % ratio),
            raw_slots=_slots(positions[length - keep :], slots),
            raw_keep=keep,
            n_new=last - first,
            first_new=first,
            raw_before=_slots(np.arange(open_start(ratio, n), n), slots),
            new_table=self.compressed.host_table(np.arange(first, last) * ratio),
        )


def host(numbers: NDArray[np.int64]) -> Any:
    """Numbers that `on_device` will take to the device."""
    return numbers.astype(np.int32)


def _slots(positions: NDArray[np.int64], size: int) -> Any:
    return host(positions % size)


def ring_positions(n_end: int, size: int) -> NDArray[np.int64]:
    """The newest position below `n_end` that each slot of a ring can hold (negative: none)."""
    slot = np.arange(size)
    newest: NDArray[np.int64] = n_end - 1 - (n_end - 1 - slot) % size
    return newest


def _visible(  # (L, S) bool of `xp`, NumPy or MLX: which slots each row sees
    xp: Any, n: int, length: int, at: NDArray[np.int64], window: int, ratio: int, n_slots: int
) -> Any:
    """Slot 0 is the sink, which every row sees."""
    row = xp.arange(n, n + length, dtype=xp.int32)[:, None]
    held = xp.array(at.astype(np.int32))
    parts = [row >= 0, (held >= 0) & (held <= row) & (held > row - window)]
    if ratio:
        parts.append(xp.arange(n_slots, dtype=xp.int32) < (row + 1) // ratio)
    return xp.concatenate(parts, axis=1)


def _masks(visible: NDArray[np.bool_] | mx.array) -> tuple[Any, Any]:
    """`mask` and `is_live` of a `RatioPlan`."""
    if isinstance(visible, mx.array):
        mask = mx.where(visible, mx.array(0.0), mx.array(-mx.inf))
        return mask, visible.any(axis=0)
    seen = np.where(visible, np.float32(0), np.float32(-np.inf))
    return seen, np.logical_or.reduce(visible, axis=0)
