"""Drafts that are launched as one graph: positions and the anchor go up, what is told down."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ds4chat.draft.dspark import Drafter, DraftLog
from ds4chat.draft.layout import DraftLayout
from ds4chat.engine.recording import Form, Recorder, Traced
from ds4chat.ops.cuda_driver import find_device
from ds4chat.ops.dispatch import current
from ds4chat.ops.step_graph import Device


class RecordedDrafts:
    """The recorded draft of one drafter; it reads rings where recorded passes write them.

    Args:
        drafter: the draft module.
        device: runs graphs.
    """

    def __init__(self, drafter: Drafter, device: Device) -> None:
        self._drafter = drafter
        self._recorder = Recorder(device, "draft")

    @property
    def n_recorded(self) -> int:
        """Forms that are recorded now: there is one."""
        return self._recorder.n_recorded

    def run(self, rings: DraftLog, anchor: int, n: int) -> NDArray[np.float32] | None:
        """What a draft behind `anchor` at position n tells, see `LazyProposal`; or None."""
        if self._recorder.is_broken:
            return None
        layout = self._drafter.layout(anchor, n)
        trace = partial(self._trace, rings, layout)
        return self._recorder.run(Form(key=layout, words=layout.words, trace=trace), rings)

    def _trace(self, rings: DraftLog, layout: DraftLayout) -> Traced:
        told, words = self._drafter.kept_proposal(rings, layout)
        return Traced(answer=told, words=words, constants=self._drafter.constants())

    def close(self) -> None:
        """Free the graph; drafts go through MLX from then on."""
        self._recorder.close()


def recorded_drafts(drafter: Drafter | None) -> RecordedDrafts | None:
    """Recorded drafts on the device in use, or None where they go through MLX."""
    device = find_device() if drafter and current().backend == "cuda" else None
    return RecordedDrafts(drafter, device) if drafter and device else None
