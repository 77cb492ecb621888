"""Decode passes that are launched as one graph, with the drafter's context rows.

The forms of `model/decode_plan.py` are recorded (`engine/recording.py`): a pass is an upload of
its plan, one launch, and a download of the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.dspark import Drafter, DraftLog
from ds4chat.engine.recording import USES_BEFORE, Form, Recorder, Traced
from ds4chat.model.decode_plan import IDS, Layout
from ds4chat.model.kv import KVLog
from ds4chat.model.target import Target
from ds4chat.ops.cuda_driver import find_device
from ds4chat.ops.dispatch import current
from ds4chat.ops.step_graph import Device

RARE_USES_BEFORE = 16
"""A recording costs the host some 0.15 s on Flash and saves 5 ms of each pass. A step of one
row and a whole block surely come again; which other numbers of rows do, their past tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """What a pass appends to: the target's log and, if there are any, the drafter's rings."""

    log: KVLog
    rings: DraftLog | None

    @property
    def owner(self) -> KVLog:
        """See `State`."""
        return self.log

    @property
    def n_moves(self) -> int:
        """See `State`."""
        return self.log.n_moves + (self.rings.n_moves if self.rings else 0)

    def arrays(self) -> list[mx.array]:
        """All arrays."""
        return self.log.arrays() + (self.rings.arrays() if self.rings else [])

    def put(self, arrays: Sequence[mx.array]) -> None:
        """Hold these arrays instead."""
        n = len(self.log.arrays())
        self.log.put(arrays[:n])
        if self.rings:
            self.rings.put(arrays[n:])


class RecordedPasses:
    """The recorded passes of one target.

    Args:
        target: the model.
        drafter: makes rows of what a pass captures, in the same graph, where there are rings.
        device: runs graphs.
        rare_uses: how often passes of several rows go through MLX before they are recorded.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        device: Device,
        *,
        rare_uses: int = RARE_USES_BEFORE,
    ) -> None:
        self._target = target
        self._drafter = drafter
        self._rare_uses = rare_uses
        self._recorder = Recorder(device, "pass")

    @property
    def n_recorded(self) -> int:
        """Forms that are recorded now."""
        return self._recorder.n_recorded

    def uses_before(self, n_rows: int) -> int:
        """How often passes of so many rows go through MLX before they are recorded."""
        drafter = self._drafter
        is_common = n_rows == 1 or (drafter and n_rows == 1 + drafter.config.block_size)
        return USES_BEFORE if is_common else self._rare_uses

    def run(
        self, logs: Logs, ids: Sequence[int], n: int, meanwhile: Callable[[], None]
    ) -> NDArray[np.float32] | None:
        """Append rows at positions n, n + 1, ..: their logits `(L, V)`.

        None: nothing has happened, and the pass must go through MLX.

        `meanwhile` is called while the device works.
        """
        if self._recorder.is_broken:
            return None
        layout = self._target.kept_layout(logs.log, n, len(ids))
        if layout is None:
            return None
        layout.views[IDS][:] = ids
        shapes = tuple(a.shape for a in logs.arrays())
        form = Form(
            key=(layout, shapes),
            words=layout.words,
            trace=partial(self._trace, logs, layout, n),
            uses_before=self.uses_before(len(ids)),
        )

        def while_it_works() -> None:
            meanwhile()
            self._target.kept_ahead(n + len(ids))

        return self._recorder.run(form, logs, while_it_works)

    def _trace(self, logs: Logs, layout: Layout, n: int) -> Traced:
        plan, words = self._target.kept_plan(layout, n)
        result = self._target.evaluate(logs.log, plan)
        constants = self._target.constants(layout.length)
        if logs.rings is not None:
            assert self._drafter is not None
            assert result.capture is not None
            self._drafter.append(logs.rings, result.capture, plan)
            constants += self._drafter.constants()
        return Traced(answer=result.logits, words=words, constants=constants)

    def release(self, logs: Logs) -> None:
        """Hold the arrays of logs no longer: a pass goes through MLX."""
        self._recorder.release(logs)

    def close(self) -> None:
        """Free all graphs; passes go through MLX from then on."""
        self._recorder.close()


def recorded_passes(target: Target, drafter: Drafter | None) -> RecordedPasses | None:
    """Recorded passes on the device in use, or None where passes go through MLX."""
    device = find_device() if current().backend == "cuda" else None
    return None if device is None else RecordedPasses(target, drafter, device)
