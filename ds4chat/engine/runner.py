"""Runs passes over a timeline and brings their results to the host.

The one place where arrays are evaluated: every pass evaluates the whole state, so that no graph
grows behind an unevaluated array.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.dspark import Drafter, DraftLog
from ds4chat.engine.recorded import Logs, RecordedPasses
from ds4chat.engine.recorded_draft import RecordedDrafts
from ds4chat.engine.snapshot_chain import Lineage
from ds4chat.model.kv import MAX_ROWS, KVLog, to_numpy
from ds4chat.model.plan import Plan
from ds4chat.model.target import PassResult, Target
from ds4chat.ops.dispatch import current

PREFILL_CHUNK = 256
_LONG_CHUNKS = {"cuda": 2048, "metal": 512}


def prefill_chunk() -> int:
    """Prompt tokens a pass; chunks end at multiples of it: borders depend on positions alone.

    A pass unpacks nearly every expert however few its rows are, so kernels want long ones.
    """
    return _LONG_CHUNKS.get(current().backend, PREFILL_CHUNK)


def _rest() -> None:
    """What the host does while the device works, if there is nothing to do."""


@dataclass(slots=True, kw_only=True)
class Timeline:
    """All state of one session: the target's log and the drafter's context rows.

    `lineage` knows the last snapshot of these very rows. `ahead` is the plan of a step that
    may be the next: it depends on the position alone, and is made while the device works.
    """

    log: KVLog
    rings: DraftLog | None
    lineage: Lineage = field(default_factory=Lineage)
    ahead: Plan | None = None

    @property
    def logs(self) -> Logs:
        """What a pass appends to."""
        return Logs(log=self.log, rings=self.rings)

    def arrays(self) -> list[mx.array]:
        """All arrays of the state."""
        return self.logs.arrays()

    def n_bytes(self) -> int:
        """Bytes that the arrays hold."""
        return sum(a.nbytes for a in self.arrays())

    def lazy_state(self, since: int = 0) -> dict[str, mx.array]:
        """The logical state, not evaluated; of compressed rows those after `since` tokens."""
        state = self.log.lazy_state(since)
        if self.rings is not None:
            state.update(self.rings.lazy_state(self.log.n))
        return state

    def logical_state(self) -> dict[str, NDArray[Any]]:
        """The logical state, copied; bfloat16 comes as its bits."""
        return {name: to_numpy(part) for name, part in self.lazy_state().items()}

    def restore(self, n: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold a logical state of `n` tokens."""
        self.log.restore(n, state)
        if self.rings is not None:
            self.rings.restore(n, state)

    def poison(self) -> None:
        """Fill every slot outside the logical state with NaN (tests of exactness)."""
        self.log.poison()
        if self.rings is not None:
            self.rings.poison(self.log.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What the drafter made: a whole block, its confidences in 0..1, and its time."""

    tokens: tuple[int, ...]
    confidences: tuple[float, ...]
    draft_s: float


class Runner:
    """A target and perhaps a drafter, on one device.

    Args:
        target: the target model.
        drafter: the draft module, or None.
        is_row_exact: whether a pass of k rows gives each row the bits of a single-row pass;
            where it does not, verify passes run row by row, which is exact by construction.
        recorded: launches passes of forms that come again as graphs, where a device can.
        recorded_drafts: the same for the drafter's proposals.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        *,
        is_row_exact: bool,
        recorded: RecordedPasses | None = None,
        recorded_drafts: RecordedDrafts | None = None,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.recorded = recorded
        self.recorded_drafts = recorded_drafts
        self.is_row_exact = is_row_exact

    @property
    def is_row_exact(self) -> bool:
        """Whether passes give rows their own bits: not once a kernel has been given up."""
        return self._is_row_exact and len(current().fallbacks) == self._n_given_up

    @is_row_exact.setter
    def is_row_exact(self, value: bool) -> None:
        self._is_row_exact = value
        self._n_given_up = len(current().fallbacks)

    def without_drafter(self) -> Runner:
        """The same target alone: its timelines keep no rows for a drafter."""
        return Runner(self.target, None, is_row_exact=self.is_row_exact, recorded=self.recorded)

    def new_timeline(self) -> Timeline:
        """An empty timeline."""
        rings = self.drafter.new_log() if self.drafter is not None else None
        return Timeline(log=self.target.new_log(), rings=rings)

    def evaluate_rows(
        self, timeline: Timeline, ids: Sequence[int], *, meanwhile: Callable[[], None] = _rest
    ) -> NDArray[np.float32]:
        """Append 1..8 rows at position n without committing: logits `(L, V)` float32.

        `meanwhile` is called once, while a GPU works; it must leave the timeline alone.

        A row that is not finite reaches the rows before it (0 * NaN is NaN), which plain
        decoding would not see: such a pass is done again row by row. So is one in which a
        kernel was given up: its stock operation may depend on the number of rows.
        """
        n = timeline.log.n
        if self.is_row_exact or len(ids) == 1:
            logits = self._pass(timeline, ids, n, meanwhile=meanwhile)
            if len(ids) == 1 or (self.is_row_exact and np.isfinite(logits).all()):
                return logits
            meanwhile = _rest
        rows = []
        for i, token in enumerate(ids):
            rows.append(self._pass(timeline, [token], n + i, meanwhile=meanwhile))
            meanwhile = _rest
        return np.concatenate(rows, axis=0)

    def prefill(
        self, timeline: Timeline, ids: Sequence[int]
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Append and commit prompt tokens, a chunk a step: (tokens done, `(V,)` logits)."""
        done, chunk_size = 0, prefill_chunk()
        while done < len(ids):
            start = timeline.log.n
            size = min(chunk_size - start % chunk_size, len(ids) - done)
            chunk = ids[done : done + size]
            is_short = size <= MAX_ROWS and self.is_row_exact
            result = self._build(timeline, chunk, start, row_exact=is_short, last_only=True)
            mx.eval(result.logits, timeline.arrays())  # sync: chunks are told as they are done
            logits = np.array(result.logits)
            timeline.log.n = start + size
            done += size
            yield done, logits[-1]

    def propose(self, timeline: Timeline, anchor: int) -> Proposal:
        """Draft a block behind `anchor`; a draft chosen among NaN has NaN for confidence."""
        assert self.drafter is not None
        assert timeline.rings is not None
        start = time.perf_counter()
        told = self._told(self.drafter, timeline.rings, anchor, timeline.log.n)
        tokens, logits, best = told.astype(np.float64)
        confidences = 1.0 / (1.0 + np.exp(-np.clip(logits, -60.0, 60.0)))
        confidences[~np.isfinite(best)] = np.nan
        return Proposal(
            tokens=tuple(int(t) for t in tokens),
            confidences=tuple(float(c) for c in confidences),
            draft_s=time.perf_counter() - start,
        )

    def _told(
        self, drafter: Drafter, rings: DraftLog, anchor: int, n: int
    ) -> NDArray[np.float32]:
        """What a proposal tells; see `LazyProposal`."""
        if self.recorded_drafts is not None:
            told = self.recorded_drafts.run(rings, anchor, n)
            if told is not None:
                return told
        return np.array(drafter.propose(rings, anchor, n).told)  # sync: the policy needs it

    def _pass(
        self, timeline: Timeline, ids: Sequence[int], n: int, *, meanwhile: Callable[[], None]
    ) -> NDArray[np.float32]:
        """A row-exact pass and its logits.

        A GPU works by itself meanwhile; on the CPU the host would only be in its way.
        """
        if self.recorded is not None:
            logits = self.recorded.run(timeline.logs, ids, n, meanwhile)
            if logits is not None:
                return logits
            self.recorded.release(timeline.logs)
        result = self._build(timeline, ids, n, row_exact=True, last_only=False)
        if not current().is_replayed:
            mx.eval(result.logits, timeline.arrays())  # sync: the choice is made on the host
            meanwhile()
            return np.array(result.logits)
        mx.async_eval(result.logits, timeline.arrays())  # type: ignore[no-untyped-call]
        meanwhile()
        if len(ids) == 1:
            timeline.ahead = self.target.plan_ahead(n + 1)
        mx.eval(result.logits)  # sync: as above; the state was handed over with them
        return np.array(result.logits)

    def _build(
        self,
        timeline: Timeline,
        ids: Sequence[int],
        n: int,
        *,
        row_exact: bool,
        last_only: bool,
    ) -> PassResult:
        plan = self.target.plan(timeline.log, ids, n, row_exact=row_exact, ahead=timeline.ahead)
        result = self.target.evaluate(timeline.log, plan, last_only=last_only, begins=True)
        if self.drafter is not None and timeline.rings is not None:
            assert result.capture is not None
            self.drafter.append(timeline.rings, result.capture, plan)
        return result
